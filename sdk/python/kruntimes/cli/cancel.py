"""`krt cancel`: cancels a Run, or one invocation of it."""

import json

import click

from kruntimes.cli.options import Target, connection, run_names

TRIES = 5
"""The Run's status may change between reading and writing it; each try reads it anew."""


@click.command()
@click.argument("name", shell_complete=run_names)
@click.option("--invocation", metavar="ID", help="Cancel this invocation only, and leave the Run as it is.")
@connection
def command(target: Target, name: str, invocation: str | None) -> None:
    """Cancels the Run NAME, for good; or, with --invocation, one call that is under way."""
    import msgspec

    from kruntimes.cli import runs
    from kruntimes.common.api.phases import TERMINAL
    from kruntimes.common.api.views import Run
    from kruntimes.sdk import wire
    from kruntimes.sdk.errors import ApiError

    with target.client() as client:
        run = runs.find(client, name)
        if invocation is not None:
            url, ca = wire.endpoint(msgspec.convert(run, Run))
            client.invoke_url(wire.cancel_url(url, invocation), b"", ca_pem=ca)
            click.echo(f"invocation {invocation} cancelled")
            return
        phase = run.get("status", {}).get("phase")
        if phase in TERMINAL:
            click.echo(f"Run {run['metadata']['name']} has ended already: {phase}")
            return
        path = wire.runs_path(client.access.namespace, run["metadata"]["name"])
        for tries in range(TRIES, 0, -1):
            run["spec"]["cancelRequested"] = True
            try:
                client.request("PUT", path, body=run)
                break
            except ApiError as error:
                if error.status != 409 or tries == 1:
                    raise
                run = json.loads(client.request("GET", path))
        click.echo(f"Run {run['metadata']['name']} is asked to end")
