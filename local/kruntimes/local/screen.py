"""What `krt dev` tells a person. Pure: facts in, text out."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = "started as root: user code is not contained; an ordinary user is enough for krt dev"


@dataclass(frozen=True, slots=True)
class Function:
    """A function Run that can be called."""

    name: str
    namespace: str
    runtime: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything on the ready screen. runtimes: name, ready, wanted. seconds: from the command to now.

    proxied: the environment names a proxy, which could not reach this machine's own addresses.
    """

    seconds: float
    gateway: str
    runtimes: Sequence[tuple[str, int, int]]
    functions: Sequence[Function]
    ca_file: Path
    token_file: Path
    logs: Path
    kubeconfig: Path
    proxied: bool = False
    body: str = '{"name": "you"}'


def ready(facts: Facts) -> str:
    """The ready screen: one ready line, what runs where, and the line that calls the first function."""
    pools = ", ".join(f"{name} {now}/{wanted}" for name, now, wanted in facts.runtimes)
    lines = [
        f"krt dev is ready after {facts.seconds:.1f} s. Ctrl-C ends it and leaves nothing behind.",
        "",
        f"  gateway     {facts.gateway}",
        f"  runtimes    {pools}",
        *(
            f"  {'functions ' if at == 0 else '          '}  {f.name}  ({f.runtime}, namespace {f.namespace})"
            for at, f in enumerate(facts.functions)
        ),
        f"  your shell  export KUBECONFIG={shlex.quote(str(facts.kubeconfig))} "
        f'KRT_TOKEN="$(cat {shlex.quote(str(facts.token_file))})"   # for kubectl and krt',
        f"  logs        {facts.logs}",
    ]
    if facts.functions:
        lines += ["", "Call it from another shell:", "", curl(facts, facts.functions[0])]
    else:
        lines += ["", "Declare a function: krt run FILE --runtime python --handler MODULE.FUNCTION --wait"]
    return "\n".join(lines) + "\n"


def curl(facts: Facts, function: Function) -> str:
    """One line for a POSIX shell. The token is read when the line is run, for tokens are replaced."""
    direct = "--noproxy '*' " if facts.proxied else ""
    return (
        f"curl -sS -i {direct}--cacert {shlex.quote(str(facts.ca_file))} "
        f'-H "Authorization: Bearer $(cat {shlex.quote(str(facts.token_file))})" '
        f"-H 'Content-Type: application/json' -d {shlex.quote(facts.body)} {shlex.quote(function.url)}"
    )
