"""`krt delete`: deletes Runs."""

import click

from kruntimes.cli.options import Duration, Target, connection, run_names


@click.command()
@click.argument("names", shell_complete=run_names, nargs=-1, required=True, metavar="NAME...")
@click.option("--wait/--no-wait", "wait_", default=True, show_default=True, help="Wait until they are gone.")
@click.option("--timeout", type=Duration(), default="60s", show_default=True, help="How long to wait for each.")
@click.option("--ignore-not-found", is_flag=True, help="A name that is not there is no error.")
@connection
def command(target: Target, names: tuple[str, ...], wait_: bool, timeout: float, ignore_not_found: bool) -> None:
    """Deletes Runs; their functions stop, and their capacity is free again when they are gone."""
    from kruntimes.cli import runs
    from kruntimes.sdk.errors import NotFoundError

    with target.client() as client:
        going, missing = [], []
        for name in (runs.name_of(client, name) for name in names):
            try:
                client.delete(name)
                going.append(name)
            except NotFoundError:
                missing.append(name)
        for name in going:
            if wait_:
                client.wait(name, "deleted", timeout=timeout)
                click.echo(f"Run {name} deleted")
            else:
                click.echo(f"Run {name} is being deleted")
    if missing and not ignore_not_found:
        raise NotFoundError(f"there is no Run {', '.join(missing)}", status=404)
