"""`python -m kruntimes.authz`."""

from kruntimes.authz.main import main

main()
