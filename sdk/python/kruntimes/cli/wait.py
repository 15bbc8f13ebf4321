"""`krt wait`: waits for a Run."""

from typing import Any

import click

from kruntimes.cli.options import Duration, Target, connection, run_names


class State(click.ParamType[str]):
    """What is waited for: `ready`, `ended`, `deleted`, or `phase=` with a phase in any case."""

    name = "state"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns it with the phase as the API spells it."""
        from kruntimes.common.api.phases import Phase
        from kruntimes.sdk.wire import PHASE

        text = str(value)
        if text in ("ready", "ended", "deleted"):
            return text
        phases = {phase.value.lower(): phase.value for phase in Phase}
        if text.startswith(PHASE) and text.removeprefix(PHASE).lower() in phases:
            return PHASE + phases[text.removeprefix(PHASE).lower()]
        return self.fail(f"{text!r} is none of ready, ended, deleted, phase=({'|'.join(phases.values())})", param, ctx)


@click.command()
@click.argument("name", shell_complete=run_names)
@click.option(
    "--for", "state", type=State(), metavar="ready|ended|deleted|phase=PHASE", default="ready", show_default=True,
    help="ended: in any phase that nothing follows.",
)  # fmt: skip
@click.option("--timeout", type=Duration(), default="60s", show_default=True, help="How long to wait, such as 2m30s.")
@connection
def command(target: Target, name: str, state: str, timeout: float) -> None:
    """Waits until the Run NAME is in that state; exit status 1 when it is not in time, or can never be.

    A wait that takes a while tells on standard error where the Run stands.
    """
    from kruntimes.cli import runs
    from kruntimes.cli.progress import Progress

    with target.client() as client:
        meant = runs.name_of(client, name)
        client.wait(meant, state, timeout=timeout, seen=Progress())
    click.echo(f"Run {meant} is {state}")
