"""`krt wait`: waits for a Run."""

import click

from kruntimes.cli.options import Duration, Target, connection


@click.command()
@click.argument("name")
@click.option("--for", "state", type=click.Choice(["ready", "ended", "deleted"]), default="ready", show_default=True)
@click.option("--timeout", type=Duration(), default="60s", show_default=True)
@connection
def command(target: Target, name: str, state: str, timeout: float) -> None:
    """Waits until the Run NAME is in that state; exit status 1 when it is not, or can never be."""
    with target.client() as client:
        client.wait(name, state, timeout=timeout)
