"""`krt get`: shows Runs."""

import json

import click

from kruntimes.cli.options import Target, connection, run_names


@click.command()
@click.argument("name", shell_complete=run_names, required=False)
@click.option("-o", "--output", type=click.Choice(["wide", "json", "yaml", "name"]), help="[default: a table]")
@connection
def command(target: Target, name: str | None, output: str | None) -> None:
    """Shows the Runs of the namespace, or the Run NAME."""
    from kruntimes.cli import runs, show
    from kruntimes.common import clock
    from kruntimes.sdk import wire

    with target.client() as client:
        if name is not None:
            found = runs.find(client, name)
        else:
            found = json.loads(client.request("GET", wire.runs_path(client.access.namespace)))
        if output in ("json", "yaml"):
            click.echo(show.rendered(found, output))
            return
        rows = found["items"] if name is None else [found]
        if output == "name":
            for row in rows:
                click.echo(f"run.kruntimes.io/{row['metadata']['name']}")
        elif rows:
            click.echo(show.table(rows, now=clock.utcnow(), wide=output == "wide"))
        else:
            click.echo(f"there are no Runs in namespace {client.access.namespace}", err=True)
