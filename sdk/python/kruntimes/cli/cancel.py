"""`krt cancel`: cancels a Run, or one invocation of it."""

import json

import click

from kruntimes.cli.options import Target, connection


@click.command()
@click.argument("name")
@click.option("--invocation", metavar="ID", help="Cancel this invocation only, and leave the Run as it is.")
@connection
def command(target: Target, name: str, invocation: str | None) -> None:
    """Cancels the Run NAME, for good; or, with --invocation, one call that is under way."""
    from kruntimes.sdk import wire

    with target.client() as client:
        if invocation is not None:
            url, ca = wire.endpoint(client.get(name))
            client.invoke_url(wire.cancel_url(url, invocation), b"", ca_pem=ca)
            return
        path = wire.runs_path(client.access.namespace, name)
        run = json.loads(client.request("GET", path))
        run["spec"]["cancelRequested"] = True
        client.request("PUT", path, body=run)
