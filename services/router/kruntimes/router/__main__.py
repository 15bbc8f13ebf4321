"""`python -m kruntimes.router`."""

from kruntimes.router.main import main

main()
