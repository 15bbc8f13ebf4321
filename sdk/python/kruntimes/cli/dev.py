"""`krt dev`: the whole of kruntimes as processes on this machine (design §10)."""

from pathlib import Path

import click

COMMAND = "kruntimes.command"


class WithCommand(click.Command):
    """A command whose line may end in `-- COMMAND…`: click alone would take COMMAND for PATH."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Takes what follows the first `--` aside."""
        if "--" in args:
            at = args.index("--")
            args, ctx.meta[COMMAND] = args[:at], tuple(args[at + 1 :])
            if not ctx.meta[COMMAND]:
                raise click.UsageError("nothing follows --")
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The usage line says so."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


@click.command(cls=WithCommand)
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option(
    "--control-plane",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Administrator's kubeconfig of a real API server without nodes, in place of the one that krt dev brings.",
)
@click.option("--logs", type=click.Path(path_type=Path, file_okay=False), help="Keep the logs in this folder.")
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]),
    default="INFO",
    show_default=True,
    help="What the services log.",
)
@click.pass_context
def command(
    ctx: click.Context, path: Path | None, control_plane: Path | None, logs: Path | None, log_level: str
) -> int:
    """Starts everything, applies PATH, and prints the line that calls it; Ctrl-C ends it and leaves nothing behind.

    PATH is a folder (its .yaml files in the order of their names; a .py or .sh that none of them names becomes a Run)
    or one file. When the .py or .sh file of a Run changes, a new Run takes the old one's place as soon as it is Ready;
    krt, given the first one's name, follows.

    With COMMAND, runs that when all is ready, with KUBECONFIG, KRT_GATEWAY, KRT_TOKEN and KRT_CACERT set,
    then stops everything and exits with its status.
    """
    if control_plane is not None and not control_plane.is_file():
        raise click.UsageError(f"--control-plane {control_plane}: no such file")
    try:
        from kruntimes.local import dev
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"krt dev needs more packages ({error.name}): pip install 'kruntimes[local]'"
        ) from None
    return dev.main(
        dev.Options(
            control_plane=control_plane.absolute() if control_plane is not None else None,
            path=path,
            command=ctx.meta.get(COMMAND, ()),
            logs=logs.absolute() if logs is not None else None,
            log_level=log_level,
        )
    )
