"""What the API server takes and refuses of a Run, and in which words (design §4)."""

from typing import Any

import pytest
from tests.api.api_server import FUNCTION, TASK, Json, Server, merged

KIB = 1024
FULL = {
    "timeout": "1h30m",
    "env": [{"name": "MODE", "value": "fast"}, {"name": "EMPTY"}],
    "retryPolicy": {"maxAttempts": 3, "backoff": "500ms", "retryableReasons": ["RuntimePodLost"]},
    "resources": {"requests": {"runs": 2, "gpu": "1"}},
    "cancelRequested": False,
    "ttlSecondsAfterFinished": 0,
}


def case(base: Json, spec: Json, *said: str, id: str) -> Any:
    """One object, and the words of which each must stand in the refusal."""
    return pytest.param(merged(base, {"spec": spec}), said, id=id)


def function(**fields: object) -> Json:
    return {"mode": {"function": fields}}


def source(**fields: object) -> Json:
    return {"source": fields}


def env(*items: Json) -> Json:
    return {"env": list(items)}


def requests(**items: object) -> Json:
    return {"resources": {"requests": items}}


ACCEPTED = [
    case(FUNCTION, {}, id="a-function"),
    case(FUNCTION, FULL, id="a-function-with-everything"),
    case(FUNCTION, {"source": None}, id="a-function-whose-code-is-in-the-image"),
    case(
        FUNCTION,
        source(inline=None, inlinePath=None, repoURL="https://example.org/a.git", commitSHA="0" * 40),
        id="a-function-from-a-commit",
    ),
    case(FUNCTION, source(inlinePath="pkg/.hidden/..main.py"), id="dots-within-segments"),
    case(FUNCTION, source(inlinePath="a" * 4096), id="longest-inline-path"),
    case(FUNCTION, source(inline="x" * 256 * KIB), id="longest-inline-source"),
    case(FUNCTION, source(inline="é" * 256 * KIB), id="inline-source-counts-characters"),
    case(FUNCTION, function(isolation="Fork", idleTimeoutSeconds=1), id="fork"),
    case(FUNCTION, function(handler="h" * 512), id="longest-handler"),
    case(FUNCTION, {"runtime": "Python_3.12-x"}, id="any-label-value-as-runtime"),
    case(FUNCTION, {"runtime": "a" * 63}, id="longest-runtime"),
    case(FUNCTION, env(*({"name": f"V{i}", "value": ""} for i in range(256))), id="most-env"),
    case(FUNCTION, env({"name": "a.b-c D", "value": "x" * 131072}), id="any-printable-name-and-longest-value"),
    case(FUNCTION, {"timeout": "999999999s" * 6}, id="longest-timeout"),
    case(FUNCTION, requests(), id="no-requests-named"),
    case(FUNCTION, requests(runs="1k", gpu=0), id="quantities-with-a-suffix"),
    *(case(FUNCTION, {"timeout": text}, id=f"timeout-{text}") for text in ("1ns", "1.5µs", "0.5h", "1m0s", "1.s")),
    case(FUNCTION, {"retryPolicy": {}}, id="empty-retry-policy"),
    case(FUNCTION, {"retryPolicy": {"maxAttempts": 100, "backoff": "0"}}, id="most-attempts-without-a-wait"),
    case(FUNCTION, {"retryPolicy": {"retryableReasons": ["r" * 128] * 32}}, id="most-and-longest-reasons"),
    case(TASK, {}, id="a-task"),
    case(TASK, FULL, id="a-task-with-everything"),
    case(TASK, {"mode": {"task": {"entrypoint": "./bin/run", "args": ["-v", ""]}}}, id="a-task-with-an-entrypoint"),
    case(TASK, {"mode": {"task": {"entrypoint": "e" * 4096}}}, id="longest-entrypoint"),
    case(TASK, {"mode": {"task": {"args": ["a"] * 255 + ["b" * 8192]}}}, id="most-and-longest-args"),
]

NUL = "a\u0000b"
REFUSED = [
    case(FUNCTION, env({"name": "A", "value": NUL}), "spec.env[0].value in body should match", id="nul-in-env"),
    case(FUNCTION, function(handler=NUL), "spec.mode.function.handler must not hold a NUL", id="nul-in-handler"),
    case(FUNCTION, source(inlinePath=NUL), "spec.source.inlinePath must not hold a NUL", id="nul-in-path"),
    case(TASK, {"mode": {"task": {"args": ["x", NUL]}}}, "spec.mode.task.args[] must not hold a NUL", id="nul-in-args"),
    case(TASK, {"mode": {"task": {"entrypoint": NUL}}}, "entrypoint must not hold a NUL", id="nul-in-entrypoint"),
    case(
        FUNCTION,
        source(inline=None, inlinePath=None, repoURL=NUL, commitSHA=NUL),
        "spec.source.repoURL must not hold a NUL",
        "spec.source.commitSHA must not hold a NUL",
        id="nul-in-a-repository",
    ),
    *[
        case(FUNCTION, {"timeout": text}, "spec.timeout must be a duration above zero", id=f"timeout-{text}")
        for text in ("10000000h", "100000h", "99999999m", "9999999999s", "9" * 19 + "ns")
    ],
    case(FUNCTION, {"retryPolicy": {"backoff": "10000000h"}}, "must be a duration, such as", id="backoff-too-long"),
    case(FUNCTION, {"runtime": None}, "spec.runtime: Required", id="no-runtime"),
    case(FUNCTION, {"runtime": ""}, "spec.runtime", "at least 1", id="empty-runtime"),
    case(FUNCTION, {"runtime": "a" * 64}, "spec.runtime: Too long", id="runtime-too-long"),
    case(FUNCTION, {"runtime": 5}, "spec.runtime", "must be of type string", id="runtime-is-a-number"),
    *(
        case(FUNCTION, {"runtime": name}, "spec.runtime must be a label value", id=f"runtime-{name!r}")
        for name in ("-a", "a-", "a/b", "a b", ".", "a\n", "ü")
    ),
    case(FUNCTION, {"mode": None}, "spec.mode: Required", id="no-mode"),
    case(FUNCTION, {"mode": {"function": None}}, "exactly one of task and function", id="neither-mode"),
    case(FUNCTION, {"mode": {"task": {}}}, "exactly one of task and function", id="both-modes"),
    case(FUNCTION, function(handler=None), "spec.mode.function.handler: Required", id="no-handler"),
    case(FUNCTION, function(handler=""), "spec.mode.function.handler", "at least 1", id="empty-handler"),
    case(FUNCTION, function(handler="h" * 513), "spec.mode.function.handler: Too long", id="handler-too-long"),
    case(FUNCTION, function(idleTimeoutSeconds=0), "idleTimeoutSeconds", "or equal to 1", id="idle-zero"),
    case(FUNCTION, function(idleTimeoutSeconds=2**31), "idleTimeoutSeconds", "less than or", id="idle-too-long"),
    case(FUNCTION, function(idleTimeoutSeconds="5m"), "idleTimeoutSeconds", "of type integer", id="idle-as-text"),
    case(FUNCTION, function(isolation="Thread"), "isolation: Unsupported", '"Worker", "Fork"', id="isolation"),
    case(TASK, {"mode": {"task": {"entrypoint": "/bin/sh"}}}, "entrypoint must be a relative path", id="absolute"),
    case(TASK, {"mode": {"task": {"entrypoint": "a/../../b"}}}, "without a '..' segment", id="entrypoint-climbs"),
    case(TASK, {"mode": {"task": {"entrypoint": ".."}}}, "without a '..' segment", id="entrypoint-is-dots"),
    case(TASK, {"mode": {"task": {"entrypoint": "e" * 4097}}}, "entrypoint: Too long", id="entrypoint-too-long"),
    case(TASK, {"mode": {"task": {"args": [""] * 257}}}, "spec.mode.task.args: Too many", id="args-too-many"),
    case(TASK, {"mode": {"task": {"args": ["a" * 8193]}}}, "spec.mode.task.args[0]: Too long", id="arg-too-long"),
    case(FUNCTION, {"source": {"inline": None, "inlinePath": None}}, "one of inline and repoURL", id="empty-source"),
    case(FUNCTION, source(repoURL="https://example.org"), "one of inline and repoURL", id="inline-and-repository"),
    case(FUNCTION, source(inline="x" * (256 * KIB + 1)), "spec.source.inline: Too long", id="inline-too-long"),
    case(TASK, source(inline=None, repoURL="r" * 2049), "spec.source.repoURL: Too long", id="repository-too-long"),
    case(TASK, source(inline=None, repoURL=""), "spec.source.repoURL", "at least 1", id="empty-repository"),
    case(TASK, source(commitSHA="0" * 40), "commitSHA needs spec.source.repoURL", id="commit-of-inline"),
    case(TASK, source(inline=None, repoURL="r", commitSHA="0" * 257), "commitSHA: Too long", id="commit-too-long"),
    case(FUNCTION, source(inlinePath=None), "inlinePath belongs to a function's inline source", id="no-inline-path"),
    case(TASK, source(inlinePath="main.sh"), "inlinePath belongs to a function's", id="inline-path-of-a-task"),
    case(
        FUNCTION,
        source(inline=None, repoURL="https://example.org"),
        "inlinePath belongs to a function's inline source",
        id="inline-path-beside-a-repository",
    ),
    case(FUNCTION, source(inlinePath="a" * 4097), "spec.source.inlinePath: Too long", id="inline-path-too-long"),
    case(FUNCTION, source(inlinePath=""), "spec.source.inlinePath", "at least 1", id="empty-inline-path"),
    *(
        case(FUNCTION, source(inlinePath=path), "spec.source.inlinePath must be a relative path", id=f"path-{path}")
        for path in ("/etc/passwd", "a//b", "a/", ".", "./a", "a/.", "..", "../a", "a/../b", "a/..", "/")
    ),
    case(
        FUNCTION,
        env({"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}),
        "spec.env[0].valueFrom: Forbidden",
        "not supported yet",
        id="env-from-a-secret",
    ),
    case(FUNCTION, env({"value": "x"}), "spec.env[0].name: Required", id="env-without-a-name"),
    case(FUNCTION, env({"name": ""}), "spec.env[0].name", "at least 1", id="env-with-an-empty-name"),
    case(FUNCTION, env({"name": "A"}, {"name": "A"}), "spec.env[1]: Duplicate value", id="env-twice"),
    case(FUNCTION, env({"name": "A=B"}), "spec.env[].name must be printable ASCII without '='", id="env-name-equals"),
    case(FUNCTION, env({"name": "A\nB"}), "spec.env[].name must be printable", id="env-name-with-a-newline"),
    case(FUNCTION, env({"name": "Ä"}), "spec.env[].name must be printable", id="env-name-beyond-ascii"),
    case(FUNCTION, env({"name": "A" * 257}), "spec.env[0].name: Too long", id="env-name-too-long"),
    case(FUNCTION, env({"name": "A", "value": "x" * 131073}), "spec.env[0].value: Too long", id="env-value-too-long"),
    case(FUNCTION, env({"name": "A", "value": 1}), "spec.env[0].value", "of type string", id="env-value-is-a-number"),
    case(FUNCTION, env(*({"name": f"V{i}"} for i in range(257))), "spec.env: Too many: 257", id="env-too-many"),
    *(
        case(FUNCTION, {"timeout": text}, "spec.timeout must be a duration above zero", id=f"timeout-{text!r}")
        for text in ("", "5", "0s", "0h0m", "-5s", "5 m", "5d", "1m-5s", "s", "9999999h", "5s\n")
    ),
    case(FUNCTION, {"timeout": 30}, "spec.timeout", "must be of type string", id="timeout-is-a-number"),
    case(FUNCTION, {"timeout": "0" * 64 + "1s"}, "spec.timeout: Too long", id="timeout-too-long"),
    case(FUNCTION, {"retryPolicy": {"maxAttempts": 0}}, "retryPolicy.maxAttempts", "or equal to 1", id="no-attempt"),
    case(FUNCTION, {"retryPolicy": {"maxAttempts": 101}}, "maxAttempts", "or equal to 100", id="too-many-attempts"),
    *(
        case(FUNCTION, {"retryPolicy": {"backoff": text}}, "retryPolicy.backoff must be a duration", id=f"wait-{text}")
        for text in ("1", "-1s", "soon")
    ),
    case(FUNCTION, {"retryPolicy": {"retryableReasons": ["r"] * 33}}, "retryableReasons: Too many", id="reasons"),
    case(FUNCTION, {"retryPolicy": {"retryableReasons": ["r" * 129]}}, "Reasons[0]: Too long", id="long-reason"),
    case(FUNCTION, {"retryPolicy": {"retryableReasons": [""]}}, "Reasons[0]", "at least 1", id="empty-reason"),
    case(FUNCTION, {"ttlSecondsAfterFinished": -1}, "spec.ttlSecondsAfterFinished", "or equal to 0", id="ttl"),
    case(FUNCTION, {"ttlSecondsAfterFinished": 2**31}, "ttlSecondsAfterFinished", "less than or", id="ttl-too-long"),
    case(FUNCTION, {"cancelRequested": "yes"}, "spec.cancelRequested", "of type boolean", id="cancel-is-text"),
    *(
        case(FUNCTION, requests(runs=amount), "spec.resources.requests.runs must be at least 1", id=f"runs-{amount!r}")
        for amount in (0, "0", "00", "0k")
    ),
    *(
        case(FUNCTION, requests(gpu=amount), "requests must hold whole numbers", id=f"gpu-{amount!r}")
        for amount in (-1, "-1", "1.5", "500m", "1e3", "2T", "one", "", "1" * 10)
    ),
    case(FUNCTION, requests(runs=1.5), "requests.runs", "of type integer,string", id="runs-is-a-fraction"),
    case(FUNCTION, requests(gpu="1" * 33), "spec.resources.requests.gpu: Too long", id="amount-too-long"),
    case(FUNCTION, requests(**{f"r{i}": 1 for i in range(17)}), "requests: Too many: 17", id="too-many-resources"),
    *(
        case(FUNCTION, {name: {}}, f'unknown field "spec.{name}"', id=f"unknown-{name}")
        for name in ("workspace", "affinity", "artifacts", "Runtime")
    ),
    case(FUNCTION, function(timeout="5s"), 'unknown field "spec.mode.function.timeout"', id="unknown-deeper"),
]


@pytest.mark.parametrize(("run", "said"), ACCEPTED)
def test_accepted(server: Server, runs: str, run: Json, said: tuple[str, ...]) -> None:
    server.done("POST", runs, run, dryRun="All", fieldValidation="Strict")


@pytest.mark.parametrize(("run", "said"), REFUSED)
def test_refused_in_words_that_name_the_field(server: Server, runs: str, run: Json, said: tuple[str, ...]) -> None:
    answer = server.call("POST", runs, run, dryRun="All", fieldValidation="Strict")
    assert answer["kind"] == "Status" and answer["code"] in (400, 422), answer
    for words in said:
        assert words in answer["message"]


def test_a_run_without_a_spec_is_refused(server: Server, runs: str) -> None:
    answer = server.call("POST", runs, {k: v for k, v in FUNCTION.items() if k != "spec"}, dryRun="All")
    assert "spec: Required value" in answer["message"]


def test_a_misspelt_field_is_dropped_where_the_client_does_not_ask_for_strictness(server: Server, runs: str) -> None:
    made = server.done("POST", runs, merged(FUNCTION, {"spec": {"affinity": {"a": 1}}}), dryRun="All")
    assert "affinity" not in made["spec"]


def test_defaults(server: Server, runs: str) -> None:
    made = server.done("POST", runs, merged(FUNCTION, {"spec": {"retryPolicy": {"backoff": "1s"}}}), dryRun="All")
    assert made["spec"]["mode"]["function"] == {"handler": "main.main", "isolation": "Worker"}
    assert made["spec"]["retryPolicy"] == {"backoff": "1s", "maxAttempts": 1}
    bare = server.done("POST", runs, FUNCTION, dryRun="All")
    assert set(bare["spec"]) == {"runtime", "source", "mode"}, "an absent optional field stays absent"
