"""`krt get`: shows Runs."""

import json

import click

from kruntimes.cli.options import Target, connection


@click.command()
@click.argument("name", required=False)
@click.option("-o", "--output", type=click.Choice(["json", "yaml", "wide"]))
@connection
def command(target: Target, name: str | None, output: str | None) -> None:
    """Shows the Runs of the namespace, or the Run NAME."""
    from kruntimes.cli import show
    from kruntimes.common import clock
    from kruntimes.sdk import wire

    with target.client() as client:
        found = json.loads(client.request("GET", wire.runs_path(client.access.namespace, name)))
        if output in ("json", "yaml"):
            click.echo(show.rendered(found, output))
            return
        runs = found["items"] if name is None else [found]
        if runs:
            click.echo(show.table(runs, now=clock.utcnow(), wide=output == "wide"))
        else:
            click.echo(f"there are no Runs in namespace {client.access.namespace}", err=True)
