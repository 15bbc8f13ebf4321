"""What RegisterFunction and InvokeFunction may ask for, checked (executor.v1). Pure apart from looking at folders."""

import os
import re
from collections.abc import Mapping

from kruntimes.common.api.outcomes import valid_invocation_id
from kruntimes.runtime import bounds
from kruntimes.runtime.registry import Code, Refused, Wanted

MAX_UID_BYTES = 253
MAX_HANDLER_BYTES = 512
MAX_ENV_BYTES = 128 * 1024
"""Names and values together; the kernel's own limit for one string of a program's environment is of this size."""

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
    """The wanted registration, or INVALID_ARGUMENT with a sentence that names the field. kind: of the hosts."""
    pattern, form = _HANDLERS[kind]
    faults = (
        (_UID.fullmatch(run_uid) is None, "run_uid is empty, too long or not visible ASCII"),
        (attempt < 1, "registration_attempt counts from 1"),
        (_DIGEST.fullmatch(digest) is None, "registration_digest is not a lowercase SHA-256"),
        (len(handler) > MAX_HANDLER_BYTES or pattern.fullmatch(handler) is None, f"handler is not of the form {form}"),
        (idle_timeout < 0, "idle_timeout_seconds is negative"),
        (not os.path.isabs(working_dir) or "\0" in working_dir, "working_dir is not an absolute path"),
        (any(not name or "=" in name or "\0" in name + value for name, value in env.items()), "env has a bad name"),
        (sum(len(n.encode()) + len(v.encode()) for n, v in env.items()) > MAX_ENV_BYTES, "env is too large"),
        (forked, "isolation FORK is not offered by this Runtime Server; use WORKER"),
    )
    for wrong, message in faults:
        if wrong:
            return Refused(Code.INVALID_ARGUMENT, "InvalidRegistration", message)
    if not os.path.isdir(working_dir):
        return Refused(Code.INVALID_ARGUMENT, "InvalidRegistration", "working_dir is not a folder")
    return Wanted(
        run_uid=run_uid, attempt=attempt, digest=digest, handler=handler, working_dir=os.path.realpath(working_dir),
        env=tuple(sorted(env.items())), idle_timeout=idle_timeout,
    )  # fmt: skip


def check_invocation(
    *, invocation_id: str, content_type: str, size: int, timeout_millis: int, default: float, maximum: float
) -> float | Refused:
    """The call's time in seconds, or INVALID_ARGUMENT. default, maximum: seconds. An empty id is allowed."""
    faults = (
        (bool(invocation_id) and not valid_invocation_id(invocation_id), "invocation_id is not visible ASCII"),
        (_CONTENT_TYPE.fullmatch(content_type) is None, "content_type is not printable ASCII, or too long"),
        (size > bounds.MAX_INPUT_BYTES, f"input has more than {bounds.MAX_INPUT_BYTES} bytes"),
        (not 0 <= timeout_millis <= maximum * 1000, f"timeout_millis must lie between 0 and {int(maximum * 1000)}"),
    )
    for wrong, message in faults:
        if wrong:
            return Refused(Code.INVALID_ARGUMENT, "InvalidInvocation", message)
    return timeout_millis / 1000 if timeout_millis else default


def environment_of(wanted: Wanted, own: Mapping[str, str]) -> dict[str, str]:
    """A function's whole environment: the server's *own* without what configures the server, then the Run's."""
    kept = {name: value for name, value in own.items() if not name.startswith("KRUNTIMES_")}
    return {**kept, **dict(wanted.env)}
