"""The digest of a registration: same inputs, same registration (executor.v1, `registration_digest`)."""

import hashlib

import msgspec

from kruntimes.common.api.views import Run

_encode = msgspec.json.Encoder(order="sorted").encode


def registration_digest(run: Run) -> str:
    """Lowercase SHA-256 over the canonical immutable inputs: source, handler, environment, isolation, idle limit.

    The working directory is not among them: it names the place, not the program. JSON with sorted keys, so that equal
    inputs give equal bytes in every version that writes these five fields.
    """
    function, source = run.spec.mode.function, run.spec.source
    if function is None:
        raise ValueError("only a function has a registration")
    inputs = {
        "source": None
        if source is None
        else {
            "inline": None if source.inline is None else hashlib.sha256(source.inline.encode()).hexdigest(),
            "inlinePath": source.inline_path,
            "repoURL": source.repo_url,
            "commitSHA": source.commit_sha,
        },
        "handler": function.handler,
        "env": {variable.name: variable.value for variable in run.spec.env},
        "isolation": function.isolation,
        "idleTimeoutSeconds": function.idle_timeout_seconds,
    }
    return hashlib.sha256(_encode(inputs)).hexdigest()
