"""`python -m kruntimes.controller` runs the operator."""

from kruntimes.common.service import main
from kruntimes.controller.main import COMPONENT, run

main(COMPONENT, run)
