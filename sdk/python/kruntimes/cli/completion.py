"""`krt completion`: what a shell needs in order to complete krt's words."""

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Prints the completion script for SHELL; for bash: eval "$(krt completion bash)"."""
    from click.shell_completion import get_completion_class

    from kruntimes.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "krt", "_KRT_COMPLETE").source())
