"""Paths, identities and epochs: strings on which more than one part must agree (design §6, §8 and §13)."""

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.names import (
    InvokePath,
    Role,
    cancel_path,
    invoke_path,
    parse_path,
    pod_dns,
    runtime_dns,
    spiffe_id,
)

UID = "2c24c1f0-9f8f-4f80-82d5-3dd16a12d1e6"
PATH = f"/v1/namespaces/demo/runtimes/python/functions/{UID}"


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        (f"{PATH}:invoke", InvokePath("demo", "python", UID, canonical=True)),
        (PATH.replace("functions", "runs") + ":invoke", InvokePath("demo", "python", UID, canonical=False)),
        (f"/v1/namespaces/a/runtimes/A_b.c-1/functions/{UID}:invoke", InvokePath("a", "A_b.c-1", UID, canonical=True)),
        (f"{PATH}/invocations/abc:cancel", InvokePath("demo", "python", UID, canonical=True, cancel="abc")),
        (f"{PATH}/invocations/a%2Fb:cancel", InvokePath("demo", "python", UID, canonical=True, cancel="a/b")),
        (f"{PATH}/invocations/a%3Fb%23c%25:cancel", InvokePath("demo", "python", UID, canonical=True, cancel="a?b#c%")),
        (f"{PATH}/invocations/a:cancel:cancel", InvokePath("demo", "python", UID, canonical=True, cancel="a:cancel")),
        (f"{PATH}/invocations/..:cancel", InvokePath("demo", "python", UID, canonical=True, cancel="..")),
        (
            PATH.replace("functions", "runs") + "/invocations/1:cancel",
            InvokePath("demo", "python", UID, canonical=False, cancel="1"),
        ),
    ],
)
def test_paths_of_the_published_forms(path: str, meant: InvokePath) -> None:
    assert parse_path(path) == meant


NOT_OF_THE_FORM = {
    "empty": "",
    "root": "/",
    "no-verb": PATH,
    "other-verb": f"{PATH}:run",
    "query": f"{PATH}:invoke?x=1",
    "empty-query": f"{PATH}:invoke?",
    "fragment": f"{PATH}:invoke#x",
    "trailing-slash": f"{PATH}:invoke/",
    "trailing-newline": f"{PATH}:invoke\n",
    "leading-blank": f" {PATH}:invoke",
    "double-slash": f"/{PATH}:invoke",
    "double-slash-inside": f"{PATH}:invoke".replace("/runtimes", "//runtimes"),
    "absolute-form": f"https://gateway{PATH}:invoke",
    "version": f"{PATH}:invoke".replace("/v1/", "/v2/"),
    "upper-case-words": f"{PATH}:invoke".replace("functions", "Functions"),
    "upper-case-verb": f"{PATH}:Invoke",
    "upper-case-uid": f"{PATH}:invoke".replace(UID, UID.upper()),
    "upper-case-namespace": f"{PATH}:invoke".replace("demo", "Demo"),
    "namespace-with-a-dot": f"{PATH}:invoke".replace("demo", "de.mo"),
    "namespace-too-long": f"{PATH}:invoke".replace("demo", "d" * 64),
    "namespace-ends-in-a-hyphen": f"{PATH}:invoke".replace("demo", "demo-"),
    "empty-namespace": f"{PATH}:invoke".replace("demo", ""),
    "runtime-too-long": f"{PATH}:invoke".replace("python", "p" * 64),
    "runtime-is-a-dot": f"{PATH}:invoke".replace("python", "."),
    "runtime-climbs": f"{PATH}:invoke".replace("python", ".."),
    "dot-segment": f"{PATH}:invoke".replace("demo", "demo/.."),
    "encoded-slash": f"{PATH}:invoke".replace("/demo", "%2Fdemo"),
    "encoded-letter": f"{PATH}:invoke".replace("python", "%70ython"),
    "encoded-colon": f"{PATH}%3Ainvoke",
    "encoded-dots": f"{PATH}:invoke".replace("demo", "demo%2F.."),
    "backslash": f"{PATH}:invoke".replace("/demo", "\\demo"),
    "nul": f"{PATH}:invoke".replace("demo", "de\0mo"),
    "name-in-place-of-the-uid": f"{PATH}:invoke".replace(UID, "my-run"),
    "uid-without-hyphens": f"{PATH}:invoke".replace(UID, UID.replace("-", "")),
    "digits-of-another-script": f"{PATH}:invoke".replace("2c24", "٢c24"),
    "cancel-without-id": f"{PATH}/invocations/:cancel",
    "cancel-of-nothing": f"{PATH}:cancel",
    "cancel-with-a-query": f"{PATH}/invocations/a?b:cancel",
    "cancel-with-a-slash": f"{PATH}/invocations/a/b:cancel",
    "cancel-climbs": f"{PATH}/invocations/../b:cancel",
    "cancel-with-a-blank": f"{PATH}/invocations/a%20b:cancel",
    "cancel-with-a-newline": f"{PATH}/invocations/a%0Ab:cancel",
    "cancel-beyond-ascii": f"{PATH}/invocations/%C3%A4:cancel",
    "cancel-half-encoded": f"{PATH}/invocations/%4:cancel",
    "cancel-id-too-long": f"{PATH}/invocations/{'a' * 129}:cancel",
    "cancel-encoded-id-too-long": f"{PATH}/invocations/{'%61' * 129}:cancel",
    "invoke-below-invocations": f"{PATH}/invocations/a:invoke",
}


@pytest.mark.parametrize("path", NOT_OF_THE_FORM.values(), ids=NOT_OF_THE_FORM.keys())
def test_every_other_spelling_is_of_another_form(path: str) -> None:
    assert parse_path(path) is None


NAMESPACES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
RUNTIMES = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", fullmatch=True)
VISIBLE = st.text(sorted(set(string.printable) - set(string.whitespace)), min_size=1, max_size=128)


@settings(deadline=None)
@given(NAMESPACES, RUNTIMES, st.uuids(), VISIBLE)
def test_what_is_built_is_read_back(namespace: str, runtime: str, uid: object, invocation: str) -> None:
    where = {"namespace": namespace, "runtime": runtime, "uid": str(uid)}
    assert parse_path(invoke_path(**where)) == InvokePath(**where, canonical=True)
    path = cancel_path(**where, invocation=invocation)
    assert parse_path(path) == InvokePath(**where, canonical=True, cancel=invocation)
    assert not set(path) & set("?# \\")


@settings(deadline=None)
@given(st.text(max_size=200))
def test_reading_a_path_never_fails(text: str) -> None:
    parse_path(text)
    parse_path(f"{PATH}/invocations/{text}:cancel")


def test_identities() -> None:
    assert (
        spiffe_id(trust_domain="cluster.local", namespace="demo", role=Role.RUNTIMED, owner="python", pod_uid=UID)
        == f"spiffe://cluster.local/ns/demo/runtimed/python/pod/{UID}"
    )
    assert pod_dns(pod_uid=UID, role=Role.ROUTER) == f"{UID}.router.kruntimes.internal"
    assert runtime_dns(namespace="demo", runtime="python") == "python.demo.runtime.kruntimes.internal"


def test_an_epoch_is_written_and_read() -> None:
    epoch = Epoch(UID, 3, "1f0e")
    assert str(epoch) == f"{UID}/3/1f0e" and Epoch.parse(str(epoch)) == epoch


@settings(deadline=None)
@given(st.uuids(), st.integers(1, 999_999_999), st.uuids())
def test_every_epoch_is_read_back(run: object, attempt: int, pod: object) -> None:
    epoch = Epoch(str(run), attempt, str(pod))
    assert Epoch.parse(str(epoch)) == epoch


@pytest.mark.parametrize(
    "text",
    ["", "a/1", "a/1/b/c", "/1/b", "a//b", "a/0/b", "a/-1/b", "a/01/b", "a/1.0/b", "a/x/b", "a/1/", " a/1/b", "a/1/b\n",
     "A/1/b", "a/1/B", "a/1/-b", "a/\u0661/b", "a/1234567890/b", f"{'a' * 254}/1/b", "a/1/b,a/1/b"],
)  # fmt: skip
def test_what_is_no_epoch(text: str) -> None:
    with pytest.raises(ValueError, match="not an epoch"):
        Epoch.parse(text)
