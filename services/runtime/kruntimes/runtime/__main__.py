"""`python -m kruntimes.runtime`: see `kruntimes.runtime.main`."""

import sys

from kruntimes.runtime.main import main

if __name__ == "__main__":
    main(sys.argv[1:])
