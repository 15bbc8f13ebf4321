"""Validation rules in CEL: those of Run and Runtime, one row per rule, and the forms a rule can take."""

import base64

import pytest
from contract.client import Answer, Api, Json, at
from contract.objects import make, obj

FUNCTION = {"function": {"handler": "case.handler"}}
TASK: Json = {"mode": {"task": {"entrypoint": "run.sh"}}, "source": None}


def run(name: str, change: Json) -> Json:
    """A function Run with *change* laid over its spec; None takes a field away."""
    body = obj("runs", name)
    body["spec"] = {k: v for k, v in {**body["spec"], **change}.items() if v is not None}
    return body


RULE = "FieldValueInvalid"
RUNS: list[tuple[str, Json, str, str, str]] = [
    # id, spec laid over a function Run, field, reason, message
    ("runtime-label", {"runtime": "-x"}, "spec.runtime", RULE, "spec.runtime must be a label value"),
    ("inline-and-repo", {"source": {"inline": "x", "inlinePath": "a.py", "repoURL": "u"}}, "spec.source", RULE,
     "spec.source must have exactly one of inline and repoURL"),
    ("neither", {"source": {}}, "spec.source", RULE, "spec.source must have exactly one of inline and repoURL"),
    ("commit-alone", {"source": {"inline": "x", "inlinePath": "a.py", "commitSHA": "c"}}, "spec.source.commitSHA",
     RULE, "spec.source.commitSHA needs spec.source.repoURL"),
    ("absolute-path", {"source": {"inline": "x", "inlinePath": "/a.py"}}, "spec.source.inlinePath", RULE,
     "spec.source.inlinePath must be a relative path"),
    ("dots-in-path", {"source": {"inline": "x", "inlinePath": "a/../b.py"}}, "spec.source.inlinePath", RULE,
     "spec.source.inlinePath must be a relative path"),
    ("path-missing", {"source": {"inline": "x"}}, "spec.source", RULE,
     "spec.source.inlinePath belongs to a function's inline source"),
    ("path-of-a-task", {**TASK, "source": {"inline": "x", "inlinePath": "a.py"}}, "spec.source", RULE,
     "spec.source.inlinePath belongs to a function's inline source"),
    ("two-modes", {"mode": {**FUNCTION, "task": {}}}, "spec.mode", RULE, "exactly one of task and function"),
    ("no-mode", {"mode": {}}, "spec.mode", RULE, "spec.mode must have exactly one of task and function"),
    ("entrypoint", {**TASK, "mode": {"task": {"entrypoint": "/bin/sh"}}}, "spec.mode.task.entrypoint", RULE,
     "spec.mode.task.entrypoint must be a relative path"),
    ("env-name", {"env": [{"name": "A=B", "value": "x"}]}, "spec.env[0].name", RULE, "must be printable ASCII"),
    ("env-from", {"env": [{"name": "A"}, {"name": "B", "valueFrom": {"x": "y"}}]}, "spec.env[1].valueFrom",
     "FieldValueForbidden", "spec.env[].valueFrom is not supported yet"),
    ("timeout-word", {"timeout": "soon"}, "spec.timeout", RULE, "spec.timeout must be a duration above zero"),
    ("timeout-zero", {"timeout": "0s"}, "spec.timeout", RULE, "spec.timeout must be a duration above zero"),
    ("backoff", {"retryPolicy": {"backoff": "5"}}, "spec.retryPolicy.backoff", RULE,
     "spec.retryPolicy.backoff must be a duration"),
    ("requests-word", {"resources": {"requests": {"cpu": "much"}}}, "spec.resources.requests", RULE,
     "spec.resources.requests must hold whole numbers"),
    ("requests-zero-runs", {"resources": {"requests": {"runs": 0}}}, "spec.resources.requests", RULE,
     "spec.resources.requests.runs must be at least 1"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "field", "reason", "message"), [pytest.param(*row[1:], id=row[0]) for row in RUNS])
def test_rules_of_a_run(api: Api, ns: str, name: str, change: Json, field: str, reason: str, message: str) -> None:
    answer = api.create(at("runs", ns), run(name, change))
    answer.refused(422, "Invalid", f'Run.kruntimes.io "{name}" is invalid: ', message)
    assert (field, reason) in answer.causes
    assert message in answer.cause_messages[field]


GOOD: list[tuple[str, Json]] = [
    ("task", TASK),
    ("task-of-a-repository", {**TASK, "source": {"repoURL": "https://x", "commitSHA": "c"}}),
    ("task-inline", {**TASK, "source": {"inline": "x"}}),
    ("function-of-a-repository", {"source": {"repoURL": "https://x"}}),
    ("function-of-the-image", {"source": None}),
    ("deep-path", {"source": {"inline": "x", "inlinePath": "a/b/c.py"}}),
    ("env", {"env": [{"name": "A", "value": "1"}, {"name": "B"}]}),
    ("timeouts", {"timeout": "1h30m", "retryPolicy": {"maxAttempts": 3, "backoff": "500ms"}}),
    ("no-backoff", {"retryPolicy": {"backoff": "0"}}),
    ("requests", {"resources": {"requests": {"runs": 2, "memory": "1Gi", "cpu": "4"}}}),
    ("largest-source", {"source": {"inline": "x" * 262144, "inlinePath": "a.py"}}),
]


@pytest.mark.parametrize("change", [pytest.param(row[1], id=row[0]) for row in GOOD])
def test_runs_that_are_good(api: Api, ns: str, name: str, change: Json) -> None:
    spec = api.create(at("runs", ns), run(name, change)).ok(201)["spec"]
    assert spec["runtime"] == "python"


def test_too_long_a_source_is_told_without_its_text(api: Api, ns: str, name: str) -> None:
    source = {"inline": "x" * 262145, "inlinePath": "a.py"}
    answer = api.create(at("runs", ns), run(name, {"source": source}))
    answer.refused(422, "Invalid", "spec.source.inline: Too long: may not be more than 262144 bytes")
    assert ("spec.source.inline", "FieldValueTooLong") in answer.causes
    assert len(answer.text) < 10_000


def test_rules_of_a_broken_schema_are_not_tried(api: Api, ns: str, name: str) -> None:
    """A value of a wrong type leaves the rules out, and one cause says so."""
    answer = api.create(at("runs", ns), run(name, {"runtime": 5, "timeout": "0s"}))
    answer.refused(422, "Invalid", 'spec.runtime: Invalid value: "integer"')
    assert "spec.timeout" not in answer.cause_messages
    assert answer.cause_messages["<nil>"] == (
        "Invalid value: null: some validation rules were not checked because the object was invalid; "
        "correct the existing errors to complete validation"
    )


IMMUTABLE: list[tuple[str, Json, Json, str]] = [
    # id, spec at creation, merge patch of spec, message (None where it is taken)
    ("runtime", {}, {"runtime": "bash"}, "spec.runtime is immutable"),
    ("source", {}, {"source": {"inline": "y"}}, "spec.source is immutable"),
    ("source-added", {"source": None}, {"source": {"repoURL": "u"}}, "spec.source is immutable"),
    ("mode", {}, {"mode": {"function": {"handler": "other.handler"}}}, "spec.mode is immutable"),
    ("env-added", {}, {"env": [{"name": "A"}]}, "spec.env is immutable"),
    ("env-removed", {"env": [{"name": "A"}]}, {"env": None}, "spec.env is immutable"),
    ("env-changed", {"env": [{"name": "A"}]}, {"env": [{"name": "A", "value": "1"}]}, "spec.env is immutable"),
    ("timeout-added", {}, {"timeout": "5s"}, "spec.timeout is immutable"),
    ("timeout-removed", {"timeout": "5s"}, {"timeout": None}, "spec.timeout is immutable"),
    ("retry", {"retryPolicy": {}}, {"retryPolicy": {"maxAttempts": 2}}, "spec.retryPolicy is immutable"),
    ("resources", {}, {"resources": {"requests": {"runs": 1}}}, "spec.resources is immutable"),
    ("cancel-taken-back", {"cancelRequested": True}, {"cancelRequested": False}, "cannot be taken back"),
    ("cancel-removed", {"cancelRequested": True}, {"cancelRequested": None}, "cannot be taken back"),
    ("cancel", {}, {"cancelRequested": True}, ""),
    ("cancel-false-first", {"cancelRequested": False}, {"cancelRequested": True}, ""),
    ("ttl", {}, {"ttlSecondsAfterFinished": 5}, ""),
    ("ttl-changed", {"ttlSecondsAfterFinished": 5}, {"ttlSecondsAfterFinished": 6}, ""),
    ("isolation-default", {}, {"mode": {"function": {"isolation": "Worker"}}}, ""),
]


@pytest.mark.parametrize(("spec", "patch", "message"), [pytest.param(*row[1:], id=row[0]) for row in IMMUTABLE])
def test_transition_rules_of_a_run(api: Api, ns: str, name: str, spec: Json, patch: Json, message: str) -> None:
    api.create(at("runs", ns), run(name, spec)).ok(201)
    answer = api.patch(at("runs", ns, name), {"spec": patch})
    if message:
        answer.refused(422, "Invalid", message)
    else:
        answer.ok(200)


CONDITION: Json = {
    "type": "Ready",
    "status": "True",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
    "reason": "R",
    "message": "",
}
STATUSES: list[tuple[str, Json, str, str]] = [
    # id, status, field, message; both empty where it is taken
    ("pod-without-uid", {"assignedPod": "p"}, "status", "must be set and cleared together"),
    ("uid-without-pod", {"assignedPodUID": "u"}, "status", "must be set and cleared together"),
    ("both", {"assignedPod": "p", "assignedPodUID": "u"}, "", ""),
    ("both-empty", {"assignedPod": "", "assignedPodUID": ""}, "", ""),
    ("phase", {"phase": "Lost"}, "status.phase", 'Unsupported value: "Lost": supported values: "Pending", '),
    ("output-key-bytes", {"outputs": {"ü" * 65: "x"}}, "status.outputs", "keys of 1 to 128 bytes"),
    ("output-value-bytes", {"outputs": {"a": "ü" * 4097}}, "status.outputs", "values of at most 8192 bytes"),
    ("outputs", {"outputs": {"a": "ü" * 4096, "b": ""}}, "", ""),
    ("reason", {"conditions": [{**CONDITION, "reason": "two words"}]}, "status.conditions[0].reason", "CamelCase"),
    ("condition", {"conditions": [CONDITION]}, "", ""),
    ("ca-bundle", {"endpoint": {"protocol": "HTTPS", "url": "u",
                                "caBundle": base64.b64encode(b"x" * 16384).decode()}}, "", ""),
    ("ca-bundle-too-large", {"endpoint": {"protocol": "HTTPS", "url": "u",
                                          "caBundle": base64.b64encode(b"x" * 16385).decode()}},
     "status.endpoint.caBundle", "at most 16384 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "field", "message"), [pytest.param(*row[1:], id=row[0]) for row in STATUSES])
def test_rules_of_a_runs_status(api: Api, ns: str, name: str, status: Json, field: str, message: str) -> None:
    make(api, "runs", ns, name)
    answer = api.patch(at("runs", ns, name, "status"), {"status": status})
    if not message:
        answer.ok(200)
        return
    answer.refused(422, "Invalid", message)
    assert message in answer.cause_messages[field]


RUNTIMES: list[tuple[str, Json, str, str, str]] = [
    # id, changes to the Pod template's spec, field below it, reason, message
    ("first-container", {"containers": [{"name": "other", "image": "i"}]}, ".containers", RULE, "must be 'runtime'"),
    ("image", {"containers": [{"name": "runtime"}]}, ".containers", "FieldValueRequired", "image is required"),
    ("runtimed", {"initContainers": [{"name": "runtimed"}]}, "", RULE, "must not have a container named 'runtimed'"),
    ("volume", {"volumes": [{"name": "sockets"}]}, ".volumes", RULE, "must not use the names workspace"),
    ("ephemeral", {"ephemeralContainers": [{}]}, ".ephemeralContainers", "FieldValueForbidden", "must not be set"),
    ("processes", {"shareProcessNamespace": True}, ".shareProcessNamespace", "FieldValueForbidden", "must not be true"),
    ("host-pid", {"hostPID": True}, ".hostPID", "FieldValueForbidden", "must not be true"),
    ("restart-policy", {"restartPolicy": "Never"}, ".restartPolicy", "FieldValueNotSupported", "Unsupported value"),
]


@pytest.mark.parametrize(
    ("change", "field", "reason", "message"), [pytest.param(*row[1:], id=row[0]) for row in RUNTIMES]
)
def test_rules_of_a_runtime(api: Api, ns: str, name: str, change: Json, field: str, reason: str, message: str) -> None:
    body = obj("runtimes", name)
    body["spec"]["template"]["spec"].update(change)
    answer = api.create(at("runtimes", ns), body)
    answer.refused(422, "Invalid", message)
    assert (f"spec.template.spec{field}", reason) in answer.causes


@pytest.mark.parametrize("bad", ["a.b", "1a", "a" * 64])
def test_the_name_of_a_runtime_is_a_rule_at_the_root(api: Api, ns: str, bad: str) -> None:
    answer = api.create(at("runtimes", ns), obj("runtimes", bad))
    answer.refused(422, "Invalid", "<nil>: Invalid value: metadata.name of a Runtime must be a name for a")
    assert answer.causes == [("<nil>", "FieldValueInvalid")]


def test_a_pod_template_is_kept_as_it_is(api: Api, ns: str, name: str) -> None:
    """Unknown fields of a preserved object are neither pruned nor warned about, not even in Strict."""
    body = obj("runtimes", name)
    extra = {"securityContext": {"runAsUser": 1}, "tolerations": [{"operator": "Exists"}], "anything": [1, {"a": None}]}
    body["spec"]["template"]["spec"].update(extra)
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1"}}
    made = api.create(at("runtimes", ns), body, fieldValidation="Strict").ok(201)
    spec = made["spec"]["template"]["spec"]
    assert {k: spec[k] for k in extra} == extra
    assert spec["containers"][0]["resources"] == {"limits": {"cpu": "1"}}


# ---------------------------------------------------------------- forms of rules


def form(api: Api, ns: str, spec: Json, name: str = "", **query: str) -> Answer:
    """The answer to the creation of a CelForm, the kind whose rules take every form."""
    body = obj("celforms", name, spec=spec)
    if not name:
        body["metadata"] = {"generateName": "form-"}
    return api.create(at("celforms", ns), body, **query)


FORM_ROWS: list[tuple[str, Json, str, str, str]] = [
    ("root", {"n": 7}, "<nil>", RULE, "Invalid value: never seven"),
    ("message-expression", {"said": 12}, "spec.said", RULE, "Invalid value: 12: want less than ten, got tens"),
    ("field-path", {"twice": {"a": 9, "b": 1}}, "spec.twice.a", RULE, "Invalid value: "),
    ("reason", {"twice": {"a": 1, "b": 9}}, "spec.twice", "FieldValueForbidden", "Forbidden: b is large"),
    ("no-message", {"lines": "a,b,c"}, "spec.lines", RULE, "failed rule: self.split(',').size() < 3"),
    ("item", {"list": ["x", "y"]}, "spec.list[1]", RULE, 'Invalid value: "y": must be x'),
    ("no-such-key", {"twice": {"b": 1}}, "spec.twice", RULE, "no such key: a evaluating rule: a is large"),
]


@pytest.mark.parametrize(
    ("spec", "field", "reason", "message"), [pytest.param(*row[1:], id=row[0]) for row in FORM_ROWS]
)
def test_forms(api: Api, ns: str, spec: Json, field: str, reason: str, message: str) -> None:
    answer = form(api, ns, spec)
    answer.refused(422, "Invalid", message)
    assert (field, reason) in answer.causes
    assert message in answer.cause_messages[field]


def test_a_transition_rule_on_a_field_says_nothing_where_the_field_comes_or_goes(api: Api, ns: str, name: str) -> None:
    form(api, ns, {}, name).ok(201)
    path = at("celforms", ns, name)
    api.patch(path, {"spec": {"once": "a"}}).ok(200)
    api.patch(path, {"spec": {"once": "b"}}).refused(422, "Invalid", "once is immutable")
    api.patch(path, {"spec": {"once": None}}).ok(200)


def test_an_optional_old_self_is_there_at_creation_too(api: Api, ns: str, name: str) -> None:
    form(api, ns, {"grows": 5}, name).ok(201)
    path = at("celforms", ns, name)
    api.patch(path, {"spec": {"grows": 6}}).ok(200)
    api.patch(path, {"spec": {"grows": 5}}).refused(422, "Invalid", "spec.grows: Invalid value: 5: failed rule: ")


def test_a_dry_run_is_held_to_the_rules(api: Api, ns: str) -> None:
    form(api, ns, {"n": 7}, dryRun="All").refused(422, "Invalid", "never seven")
