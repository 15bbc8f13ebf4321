"""`python -m kruntimes.controller.hooks definitions|leave|remains`: what an installation does around its own life.

definitions             applies the CustomResourceDefinitions of this version (before an upgrade or a rollback)
leave [--all]           ends Runs and Runtimes while the operator still works (before an uninstall)
remains [--definitions] removes what the operator has made (after an uninstall), and the definitions if so told
"""

import argparse
import sys

from kruntimes.common import service
from kruntimes.common.api.settings import Settings
from kruntimes.common.errors import Terminal
from kruntimes.common.kube.transport import Kube
from kruntimes.controller.hooks.definitions import apply_definitions, remove_definitions
from kruntimes.controller.hooks.leave import Leaving
from kruntimes.controller.hooks.remains import remove_remains

DEFAULT_SECONDS = 120.0
"""A call in flight gets 8 s and its clean-up as many; a lost Pod is fenced after 75 s."""


def main(arguments: list[str]) -> None:
    """Runs one hook; the exit status tells Helm whether to go on."""
    parser = argparse.ArgumentParser(prog="python -m kruntimes.controller.hooks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("definitions")
    leave = commands.add_parser("leave")
    leave.add_argument("--release", default="kruntimes", help="the release whose Runtimes end")
    leave.add_argument("--all", action="store_true", help="end the Runtimes of everybody, since their kind will go")
    leave.add_argument("--seconds", type=float, default=DEFAULT_SECONDS, help="how long an orderly end is waited for")
    remains = commands.add_parser("remains")
    remains.add_argument("--definitions", action="store_true", help="remove the CustomResourceDefinitions too")
    given = parser.parse_args(arguments)

    async def run(settings: Settings) -> None:
        settings.require("namespace")
        kube = await Kube.connect()
        try:
            if given.command == "definitions":
                await apply_definitions(kube)
            elif given.command == "leave":
                if given.seconds <= 0:
                    raise Terminal("--seconds must lie above 0")
                selector = (
                    "" if given.all else f"app.kubernetes.io/managed-by=Helm,app.kubernetes.io/instance={given.release}"
                )
                await Leaving(kube, runtimes=selector, seconds=given.seconds).run()
            else:
                if given.definitions:
                    await remove_definitions(kube)
                await remove_remains(kube, namespace=settings.namespace)
        finally:
            await kube.close()

    service.main(f"kruntimes-hook-{given.command}", run)


if __name__ == "__main__":
    main(sys.argv[1:])
