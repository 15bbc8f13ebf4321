"""`python -m kruntimes.runtimed`."""

from kruntimes.common.service import main
from kruntimes.runtimed.main import run

if __name__ == "__main__":
    main("runtimed", run)
