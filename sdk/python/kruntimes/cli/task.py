"""`krt task`: declares a task Run from a file."""

from pathlib import Path

import click

from kruntimes.cli.options import Duration, Target, connection
from kruntimes.cli.run import runtime_of, source_of, variable


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("args", nargs=-1)
@click.option("--runtime", help="Runtime that runs it. [default: python for .py, bash for .sh]")
@click.option("--entrypoint", help="File name under which FILE is written and run. [default: its own]")
@click.option("--name", help="Name of the Run. [default: made of FILE's]")
@click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="Environment variable; may be repeated.")
@click.option("--timeout", metavar="DURATION", help="Longest life of the task, such as 10m.")
@click.option("--wait", "wait_", is_flag=True, help="Wait until it has ended; exit status 1 unless it succeeded.")
@click.option("--wait-timeout", type=Duration(), default="10m", show_default=True, help="How long to wait.")
@connection
def command(
    target: Target,
    file: Path,
    args: tuple[str, ...],
    runtime: str | None,
    entrypoint: str | None,
    name: str | None,
    env: tuple[str, ...],
    timeout: str | None,
    wait_: bool,
    wait_timeout: float,
) -> None:
    """Declares the task in FILE, with ARGS, and prints the name of its Run. Options of the task itself follow --.

    A task runs once to its end. `krt logs NAME -f` follows what it prints. The name is printed before a wait begins.
    """
    from kruntimes.cli.progress import Progress
    from kruntimes.sdk import manifests

    manifest = manifests.task_run(
        runtime=runtime or runtime_of(file),
        source=source_of(file),
        entrypoint=entrypoint or file.name,
        args=args,
        stem=file.name,
        name=name,
    )
    if env:
        manifest["spec"]["env"] = [variable(text) for text in env]
    if timeout:
        manifest["spec"]["timeout"] = timeout
    with target.client() as client:
        name = client.create(manifest).metadata.name
        click.echo(name)
        if wait_:
            client.wait(name, "phase=Succeeded", timeout=wait_timeout, seen=Progress())
