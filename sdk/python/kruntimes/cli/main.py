"""`krt`: the command line. Each command is imported when it is used, so that `krt --help` costs little (design §12)."""

import sys
from importlib import import_module
from typing import NoReturn

import click

COMMANDS = {
    "dev": "run a whole kruntimes on this machine",
    "run": "declare a function from a file",
    "task": "declare a task from a file",
    "get": "show Runs, or one Run",
    "describe": "show one Run with its conditions and events",
    "wait": "wait until a Run is ready, ended, deleted or in a phase",
    "invoke": "call a function",
    "logs": "show what a function printed and what became of its invocations",
    "cancel": "cancel a Run, or one of its invocations",
    "delete": "delete Runs",
    "completion": "print what makes a shell complete krt's words",
}


class Lazy(click.Group):
    """A group whose commands live in modules of their own name, with `command` in each."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of a Run's life."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the command that is asked for."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"kruntimes.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kruntimes", prog_name="krt")
def cli() -> None:
    """Runs functions in warm Pods on Kubernetes.

    Finds the cluster as kubectl does: --kubeconfig, $KUBECONFIG, ~/.kube/config. Exit status: 0 done, 1 an error that
    one sentence tells, 2 a wrong command line; those of invoke are its own.
    """


def main() -> None:
    """Entry point."""
    run(sys.argv[1:])


def run(arguments: list[str]) -> NoReturn:
    """Runs one command and exits. An error that a person can act on is one sentence; 2 is a wrong command line."""
    try:
        status = cli.main(arguments, prog_name="krt", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(2)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
    except Exception as error:
        from kruntimes.sdk.errors import SdkError

        if not isinstance(error, SdkError):
            raise
        click.echo(f"krt: {error}", err=True)
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)
