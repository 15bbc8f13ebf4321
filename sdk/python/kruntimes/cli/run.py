"""`krt run`: declares a function Run from a file."""

from pathlib import Path
from typing import Any

import click

from kruntimes.cli.options import Duration, Target, connection

RUNTIMES = {".py": "python", ".sh": "bash"}
MAX_SOURCE_BYTES = 262_144


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--runtime", help="Runtime that runs it. [default: python for .py, bash for .sh]")
@click.option("--handler", required=True, help="What to call: MODULE.FUNCTION.")
@click.option("--name", help="Name of the Run. [default: made of FILE's]")
@click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="Environment variable; may be repeated.")
@click.option("--timeout", metavar="DURATION", help="Longest life of the function, such as 8h.")
@click.option("--idle-timeout", type=Duration(), help="Ends the function when it was not called for so long.")
@click.option("--wait", "wait_", is_flag=True, help="Wait until it is Ready.")
@click.option("--wait-timeout", type=Duration(), default="60s", show_default=True, help="How long to wait.")
@connection
def command(
    target: Target,
    file: Path,
    runtime: str | None,
    handler: str,
    name: str | None,
    env: tuple[str, ...],
    timeout: str | None,
    idle_timeout: float | None,
    wait_: bool,
    wait_timeout: float,
) -> None:
    """Declares the function in FILE and prints the name of its Run.

    Without --wait it does not wait for it to be Ready; krt wait does.
    """
    from kruntimes.cli.progress import Progress
    from kruntimes.sdk import manifests

    chosen = runtime or runtime_of(file)
    if chosen in RUNTIMES.values() and not all(handler.partition(".")):
        raise click.UsageError(f"--handler {handler!r}: not MODULE.FUNCTION, such as {file.stem}.handler")
    spec: dict[str, Any] = {}
    if env:
        spec["env"] = [variable(text) for text in env]
    if timeout:
        spec["timeout"] = timeout
    manifest = manifests.function_run(
        runtime=chosen, handler=handler, source=source_of(file), inline_path=file.name, name=name, spec=spec
    )
    if idle_timeout is not None:
        manifest["spec"]["mode"]["function"]["idleTimeoutSeconds"] = max(1, round(idle_timeout))
    with target.client() as client:
        made = client.create(manifest)
        if wait_:
            client.wait(made.metadata.name, timeout=wait_timeout, seen=Progress())
    click.echo(made.metadata.name)


def runtime_of(file: Path) -> str:
    """The Runtime that runs files with its ending."""
    found = RUNTIMES.get(file.suffix)
    if found is None:
        raise click.UsageError(f"--runtime: none is known for {file.suffix or 'a file without a suffix'}")
    return found


def source_of(file: Path) -> str:
    """The file's text; refused here where the API would refuse it with a longer sentence."""
    data = file.read_bytes()
    if len(data) > MAX_SOURCE_BYTES:
        raise click.UsageError(f"{file} has {len(data)} bytes; an inline source has at most {MAX_SOURCE_BYTES}")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise click.UsageError(f"{file} is not UTF-8") from None


def variable(text: str) -> dict[str, str]:
    """NAME=VALUE as an EnvVar."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.UsageError(f"--env {text!r}: not NAME=VALUE")
    return {"name": name, "value": value}
