"""`krt describe`: shows one Run with its conditions and events."""

import json

import click

from kruntimes.cli.options import Target, connection, run_names


@click.command()
@click.argument("name", shell_complete=run_names)
@connection
def command(target: Target, name: str) -> None:
    """Shows what the Run NAME is, where it is, why, and what happened to it."""
    from kruntimes.cli import runs, show
    from kruntimes.common import clock
    from kruntimes.sdk.errors import ApiError

    with target.client() as client:
        namespace = client.access.namespace
        run = runs.find(client, name)
        try:
            query = {"fieldSelector": f"involvedObject.uid={run['metadata']['uid']}"}
            events = json.loads(client.request("GET", f"/api/v1/namespaces/{namespace}/events", query=query))["items"]
        except ApiError:
            events = []
        click.echo(show.description(run, events, now=clock.utcnow()))
