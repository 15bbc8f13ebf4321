"""What RegisterFunction and InvokeFunction may ask for, checked (executor.v1). Pure apart from looking at folders."""

import os
import re
import sys
from collections.abc import Mapping, Sequence

from kruntimes.common.api.outcomes import valid_invocation_id
from kruntimes.runtime import bounds
from kruntimes.runtime.executions import Task
from kruntimes.runtime.registry import Code, Refused, Wanted

MAX_UID_BYTES = 253
MAX_HANDLER_BYTES = 512
MAX_ENV_BYTES = 128 * 1024
"""Names and values together; the kernel's own limit for one string of a program's environment is of this size."""
MAX_ARGS = 256
MAX_ARG_BYTES = 8192
MAX_ENTRYPOINT_BYTES = 4096
MAX_TASK_SECONDS = 366 * 24 * 3600
"""A year; what runs longer is no task, and timers need some bound."""
INTERPRETERS = {"python": sys.executable, "bash": "bash"}
"""For entrypoints that are not executable, by language."""
LANGUAGES = {".py": "python", ".sh": "bash"}
"""By the end of an entrypoint's name; a name without an end is of the server's own language."""

_WORD = r"[A-Za-z_][A-Za-z0-9_]*"
_HANDLERS = {
    "python": (re.compile(rf"{_WORD}(\.{_WORD})+"), "module.function"),
    "bash": (re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(/[A-Za-z0-9_][A-Za-z0-9_-]*)*\.[A-Za-z_][A-Za-z0-9_-]*"),
             "file.function"),
}  # fmt: skip
_UID = re.compile(rf"[!-~]{{1,{MAX_UID_BYTES}}}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_CONTENT_TYPE = re.compile(r"[ -~]{0,256}")


def check_registration(
    *,
    kind: str,
    run_uid: str,
    attempt: int,
    digest: str,
    handler: str,
    working_dir: str,
    env: Mapping[str, str],
    idle_timeout: int,
    forked: bool,
) -> Wanted | Refused:
    """The wanted registration, or INVALID_ARGUMENT with a sentence that names the field. kind: of the hosts.

    forked: isolation FORK. A Bash function needs nothing for it: each of its calls has a subshell of its own.
    """
    pattern, form = _HANDLERS[kind]
    faults = (
        (_UID.fullmatch(run_uid) is None, "run_uid is empty, too long or not visible ASCII"),
        (attempt < 1, "registration_attempt counts from 1"),
        (_DIGEST.fullmatch(digest) is None, "registration_digest is not a lowercase SHA-256"),
        (len(handler) > MAX_HANDLER_BYTES or pattern.fullmatch(handler) is None, f"handler is not of the form {form}"),
        (idle_timeout < 0, "idle_timeout_seconds is negative"),
        *_environment_faults(working_dir, env),
    )
    for wrong, message in faults:
        if wrong:
            return Refused(Code.INVALID_ARGUMENT, "InvalidRegistration", message)
    return Wanted(
        run_uid=run_uid, attempt=attempt, digest=digest, handler=handler, working_dir=os.path.realpath(working_dir),
        env=tuple(sorted(env.items())), idle_timeout=idle_timeout, forked=forked and kind == "python",
    )  # fmt: skip


def check_task(
    *,
    kind: str,
    task_id: str,
    entrypoint: str,
    args: Sequence[str],
    working_dir: str,
    env: Mapping[str, str],
    handler: str,
    timeout: int,
) -> Task | Refused:
    """The wanted task, or INVALID_ARGUMENT with a sentence that names the field.

    kind: of the hosts. entrypoint: a file of *working_dir*: executable, or `.py` or `.sh`, or of the server's own
    language where its name has no such end. Without one, *args* is the whole command. timeout: seconds, 0 for none.
    """
    faults = (
        (_UID.fullmatch(task_id) is None, "id is empty, too long or not visible ASCII"),
        (bool(handler), "handler belongs to functions; a task names an entrypoint"),
        (not entrypoint and not args, "entrypoint and args are both empty"),
        (
            len(entrypoint.encode()) > MAX_ENTRYPOINT_BYTES or "\0" in entrypoint,
            "entrypoint is too long, or holds a NUL",
        ),
        (os.path.isabs(entrypoint) or ".." in entrypoint.split("/"), "entrypoint is not relative, or holds `..`"),
        (len(args) > MAX_ARGS, f"args has more than {MAX_ARGS} items"),
        (
            any(len(arg.encode()) > MAX_ARG_BYTES or "\0" in arg for arg in args),
            "an item of args is too long or holds a NUL",
        ),
        (not 0 <= timeout <= MAX_TASK_SECONDS, f"timeout_seconds must lie between 0 and {MAX_TASK_SECONDS}"),
        *_environment_faults(working_dir, env),
    )
    for wrong, message in faults:
        if wrong:
            return Refused(Code.INVALID_ARGUMENT, "InvalidTask", message)
    folder = os.path.realpath(working_dir)
    command = _command(folder, entrypoint, kind) if entrypoint else ()
    if command is None:
        return Refused(
            Code.INVALID_ARGUMENT, "InvalidTask",
            f"entrypoint {entrypoint!r} is no executable, .py or .sh file of the working directory",
        )  # fmt: skip
    return Task(
        id=task_id, command=(*command, *args), working_dir=folder, env=tuple(sorted(env.items())), timeout=timeout
    )


def _command(folder: str, entrypoint: str, kind: str) -> tuple[str, ...] | None:
    """What to execute for the file *entrypoint*, or None where it cannot be."""
    path = os.path.realpath(os.path.join(folder, entrypoint))
    if not path.startswith(folder.rstrip(os.sep) + os.sep) or not os.path.isfile(path):
        return None
    if os.access(path, os.X_OK):
        return (path,)
    end = os.path.splitext(path)[1]
    language = LANGUAGES.get(end) if end else kind
    return (INTERPRETERS[language], path) if language else None


def _environment_faults(working_dir: str, env: Mapping[str, str]) -> tuple[tuple[bool, str], ...]:
    return (
        (not os.path.isabs(working_dir) or "\0" in working_dir, "working_dir is not an absolute path"),
        (any(not name or "=" in name or "\0" in name + value for name, value in env.items()), "env has a bad name"),
        (sum(len(n.encode()) + len(v.encode()) for n, v in env.items()) > MAX_ENV_BYTES, "env is too large"),
        ("\0" not in working_dir and not os.path.isdir(working_dir), "working_dir is not a folder"),
    )


def check_invocation(
    *, invocation_id: str, content_type: str, size: int, timeout_millis: int, default: float, maximum: float
) -> float | Refused:
    """The call's time in seconds, or INVALID_ARGUMENT. default, maximum: seconds. An empty id is allowed."""
    if invocation_id and not valid_invocation_id(invocation_id):
        return _invalid_invocation("invocation_id is not visible ASCII")
    if _CONTENT_TYPE.fullmatch(content_type) is None:
        return _invalid_invocation("content_type is not printable ASCII, or too long")
    if size > bounds.MAX_INPUT_BYTES:
        return _invalid_invocation(f"input has more than {bounds.MAX_INPUT_BYTES} bytes")
    if not 0 <= timeout_millis <= maximum * 1000:
        return _invalid_invocation(f"timeout_millis must lie between 0 and {int(maximum * 1000)}")
    return timeout_millis / 1000 if timeout_millis else default


def _invalid_invocation(message: str) -> Refused:
    return Refused(Code.INVALID_ARGUMENT, "InvalidInvocation", message)


def environment_of(wanted: Wanted | Task, own: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of user code: the server's *own* without what configures the server, then the Run's."""
    kept = {name: value for name, value in own.items() if not name.startswith("KRUNTIMES_")}
    return {**kept, **dict(wanted.env)}
