"""What `krt dev` tells a person. Pure: facts in, text out."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = "started as root: user code is not contained; an ordinary user is enough for krt dev"
ORDINARY = "user code runs as you: all that is yours is its too, but for the memory of the Python services"


@dataclass(frozen=True, slots=True)
class Function:
    """A function Run that can be called. name: what people call it; file: the one that is followed, or empty."""

    name: str
    namespace: str
    runtime: str
    url: str
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything on the ready screen. runtimes: name, ready, wanted. seconds: from the command to now.

    proxied: the environment names a proxy, which could not reach this machine's own addresses.
    """

    seconds: float
    gateway: str
    api: str
    runtimes: Sequence[tuple[str, int, int]]
    functions: Sequence[Function]
    ca_file: Path
    token_file: Path
    logs: Path
    kubeconfig: Path
    proxied: bool = False
    body: str = '{"name": "you"}'


def ready(facts: Facts) -> str:
    """The ready screen: one ready line, what runs where, and the lines that call the first function."""
    pools = ", ".join(f"{name} {now}/{wanted}" for name, now, wanted in facts.runtimes)
    lines = [
        f"krt dev is ready after {facts.seconds:.1f} s. Ctrl-C ends it and leaves nothing behind.",
        "",
        f"  gateway    {facts.gateway}",
        f"  API        {facts.api}",
        f"  Runtimes   {pools}",
        *(f"  {'Functions' if at == 0 else '':<9}  {_function(f)}" for at, f in enumerate(facts.functions)),
        f"  logs       {facts.logs}",
        "",
    ]
    export = f"export KUBECONFIG={shlex.quote(str(facts.kubeconfig))}"
    if not facts.functions:
        return "\n".join(
            [
                *lines,
                "Declare a function from another shell, with krt or kubectl:",
                "",
                export,
                "krt run FILE.py --handler FILE.FUNCTION --wait",
                "",
            ]
        )
    first = facts.functions[0]
    space = "" if first.namespace == "default" else f" -n {shlex.quote(first.namespace)}"
    return "\n".join(
        [
            *lines,
            f"Call {first.name} from another shell:",
            "",
            curl(facts, first),
            "",
            "or with krt; the first line serves kubectl too:",
            "",
            export,
            f"krt invoke {first.name}{space} -d {shlex.quote(facts.body)}",
            f"krt logs {first.name}{space} -f",
            "",
        ]
    )


def _function(function: Function) -> str:
    at = f"{function.name}   {function.runtime}, namespace {function.namespace}"
    return f"{at}, replaced when {function.file} changes" if function.file else at


def curl(facts: Facts, function: Function) -> str:
    """One line for a POSIX shell. The token is read when the line is run, for tokens are replaced."""
    direct = "--noproxy '*' " if facts.proxied else ""
    return (
        f"curl -sS -i {direct}--cacert {shlex.quote(str(facts.ca_file))} "
        f'-H "Authorization: Bearer $(cat {shlex.quote(str(facts.token_file))})" '
        f"-H 'Content-Type: application/json' -d {shlex.quote(facts.body)} {shlex.quote(function.url)}"
    )
