"""What a person is told while a command waits: where the Run stands, whenever that is another place (design §12)."""

from typing import TYPE_CHECKING

import click

from kruntimes.common import clock

if TYPE_CHECKING:
    from kruntimes.common.api.views import Run

QUIET_SECONDS = 1.0
"""A warm Pod makes a function Ready within it, and nobody wants to read of the steps."""


class Progress:
    """Tells on standard error, once for each place, as soon as the wait has taken a while."""

    def __init__(self) -> None:
        self._began = clock.monotonic()
        self._said = ""

    def __call__(self, run: "Run") -> None:
        """Takes what a look has found."""
        from kruntimes.sdk.waiting import standing

        text = standing(run).partition("\n")[0]
        if text != self._said and clock.monotonic() - self._began >= QUIET_SECONDS:
            self._said = text
            click.echo(f"krt: Run {run.metadata.name} is {text}", err=True)
