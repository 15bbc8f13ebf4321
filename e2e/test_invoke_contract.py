"""The invoke contract of design §6, through the real path: declare, Ready, invoke over TLS."""

import json
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from support import Api, Gateway, check_error, eventually, path_of

HELLO = """
def handler(event):
    return {"hello": event.get("name", "world")}
"""
HOLD = """
import os, time

def handler(event):
    if event.get("entered"):
        open(event["entered"], "w").close()
        while not os.path.exists(event["release"]):
            time.sleep(0.005)
    return "free"
"""
KINDS = pytest.mark.parametrize("http2", [pytest.param(False, id="http1"), pytest.param(True, id="http2")])
GET = {"apiGroups": ["kruntimes.io"], "resources": ["runs"], "verbs": ["get"]}
LIST = {"apiGroups": ["kruntimes.io"], "resources": ["runs"], "verbs": ["list"]}


@pytest.fixture(scope="module")
def hello(api: Api) -> Iterator[dict[str, Any]]:
    """A Ready function that greets."""
    with api.function(HELLO) as run:
        yield run


@KINDS
def test_a_call_answers_with_the_handlers_json(gateway: Gateway, hello: dict[str, Any], http2: bool) -> None:
    with gateway.client(http2=http2) as client:
        answer = client.post(path_of(hello), content=b'{"name": "you"}', headers=gateway.headers())
    assert answer.status_code == 200, answer.text
    assert answer.http_version == ("HTTP/2" if http2 else "HTTP/1.1")
    assert answer.json() == {"hello": "you"}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-kruntime-outcome"] == "completed"
    assert answer.headers["x-kruntime-retry-safe"] == "false"
    assert answer.headers["x-kruntime-invocation-id"]


def test_the_callers_invocation_id_comes_back(gateway: Gateway, hello: dict[str, Any]) -> None:
    with gateway.client() as client:
        for value in ("a", "~" * 128, "id-1/2?3=%41"):
            headers = gateway.headers({"x-kruntime-invocation-id": value})
            answer = client.post(path_of(hello), content=b"{}", headers=headers)
            assert answer.status_code == 200, answer.text
            assert answer.headers["x-kruntime-invocation-id"] == value


def test_ids_that_the_gateway_makes_differ(gateway: Gateway, hello: dict[str, Any]) -> None:
    with gateway.client() as client:
        ids = {
            client.post(path_of(hello), content=b"{}", headers=gateway.headers()).headers["x-kruntime-invocation-id"]
            for _ in range(5)
        }
    assert len(ids) == 5


def test_the_published_endpoint_is_what_is_invoked(gateway: Gateway, hello: dict[str, Any]) -> None:
    endpoint = hello["status"]["endpoint"]
    assert endpoint["protocol"] == "HTTPS"
    assert endpoint["url"] == gateway.url + path_of(hello)
    with gateway.client() as client:
        assert client.post(endpoint["url"], content=b"{}", headers=gateway.headers()).status_code == 200


def test_the_alias_path_is_served(gateway: Gateway, hello: dict[str, Any]) -> None:
    with gateway.client() as client:
        alias = path_of(hello).replace("/functions/", "/runs/")
        answer = client.post(alias, content=b"{}", headers=gateway.headers())
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"hello": "world"}


@KINDS
def test_a_token_that_may_not_get_the_run_403(api: Api, gateway: Gateway, hello: dict[str, Any], http2: bool) -> None:
    token = api.user("t-stranger", [])
    with gateway.client(http2=http2) as client:
        answer = client.post(path_of(hello), content=b"{}", headers=replace(gateway, token=token).headers())
    check_error(answer, 403, "rejected", reason="Forbidden")


def test_get_on_the_one_run_by_name_is_enough(api: Api, gateway: Gateway, hello: dict[str, Any]) -> None:
    rule = {**GET, "resourceNames": [hello["metadata"]["name"]]}
    token = api.user(f"t-{hello['metadata']['name']}", [rule])
    with gateway.client() as client:
        answer = client.post(path_of(hello), content=b"{}", headers=replace(gateway, token=token).headers())
    assert answer.status_code == 200, answer.text


def test_an_unknown_uid_is_404_only_for_who_may_list(api: Api, gateway: Gateway, hello: dict[str, Any]) -> None:
    unknown = path_of({"metadata": {**hello["metadata"], "uid": str(uuid.uuid4())}, "spec": hello["spec"]})
    lister = replace(gateway, token=api.user("t-lister", [GET, LIST]))
    getter = replace(gateway, token=api.user("t-getter", [GET]))
    with gateway.client() as client:
        check_error(client.post(unknown, content=b"{}", headers=lister.headers()), 404, "rejected")
        check_error(client.post(unknown, content=b"{}", headers=getter.headers()), 403, "rejected")


@pytest.mark.parametrize("part", ["namespace", "runtime"])
def test_a_uid_under_another_namespace_or_runtime_is_404(
    api: Api, gateway: Gateway, hello: dict[str, Any], part: str
) -> None:
    wrong = {"metadata": dict(hello["metadata"]), "spec": dict(hello["spec"])}
    if part == "namespace":
        wrong["metadata"]["namespace"] = "kube-public"
    else:
        wrong["spec"]["runtime"] = "bash"
    token = api.user("t-lister", [GET, LIST], namespace=wrong["metadata"]["namespace"])
    with gateway.client() as client:
        answer = client.post(path_of(wrong), content=b"{}", headers=replace(gateway, token=token).headers())
    check_error(answer, 404, "rejected", reason="RunNotFound")


@KINDS
def test_a_run_that_is_not_ready_503_with_retry_after(api: Api, gateway: Gateway, http2: bool) -> None:
    slow = "import time\ntime.sleep(5)\ndef handler(event):\n    return 1\n"
    name = f"t-{uuid.uuid4().hex[:10]}"
    run = api.declare(name, slow, handler="case.handler")
    try:
        eventually("claimed", lambda: ((api.run(name) or {}).get("status") or {}).get("phase") == "Running")
        with gateway.client(http2=http2) as client:
            answer = client.post(path_of(run), content=b"{}", headers=gateway.headers())
        check_error(answer, 503, "not_dispatched", retry_after=True)
    finally:
        api.delete(name)


@KINDS
@pytest.mark.shared_files
def test_an_overlapping_call_429_with_retry_after(api: Api, gateway: Gateway, tmp_path: Any, http2: bool) -> None:
    entered, release = tmp_path / "entered", tmp_path / "release"
    with api.function(HOLD) as run, gateway.client(http2=http2) as client, gateway.client() as other:
        answers: list[httpx.Response] = []
        body = json.dumps({"entered": str(entered), "release": str(release)})

        def hold() -> None:
            answers.append(other.post(path_of(run), content=body, headers=gateway.headers()))

        caller = threading.Thread(target=hold)
        caller.start()
        try:
            eventually("the first call runs", entered.exists)
            answer = client.post(path_of(run), content=b"{}", headers=gateway.headers())
            check_error(answer, 429, "rejected", reason="InvocationInFlight", retry_after=True)
        finally:
            release.touch()
            caller.join(30)
        assert answers[0].status_code == 200, answers[0].text
        answer = client.post(path_of(run), content=b"{}", headers=gateway.headers())
        assert answer.status_code == 200, answer.text


@KINDS
@pytest.mark.parametrize("size", [8_000, 8_191, 12_000, 15_000])
def test_long_headers_are_judged_by_the_same_rules(
    gateway: Gateway, hello: dict[str, Any], size: int, http2: bool
) -> None:
    with gateway.client(http2=http2) as client:
        headers = gateway.headers({"x-long": "a" * (size - len(gateway.token))})  # tokens differ by hundreds of bytes
        assert client.post(path_of(hello), content=b"{}", headers=headers).status_code == 200
        headers = gateway.headers({"authorization": "Bearer " + "a" * size})
        check_error(client.post(path_of(hello), content=b"{}", headers=headers), 401, "rejected")


def test_headers_that_the_gateway_makes_too_long_431(gateway: Gateway, hello: dict[str, Any]) -> None:
    """Between what a caller may send and what the gateway may pass on, every size has an honest answer."""
    seen = []
    with gateway.client() as client:
        for size in range(15_700, 16_500, 20):
            headers = gateway.headers({"x-long": "a" * (size - len(gateway.token))})
            answer = client.post(path_of(hello), content=b"{}", headers=headers)
            if answer.status_code != 200:
                check_error(answer, 431, "rejected")
            seen.append(answer.status_code)
    assert set(seen) == {200, 431}
    assert seen == sorted(seen)


def test_a_handler_that_raises_500_and_serves_the_next_call(api: Api, gateway: Gateway) -> None:
    source = "def handler(event):\n    if event.get('bad'):\n        raise ValueError('no good')\n    return 'good'\n"
    with api.function(source) as run, gateway.client() as client:
        answer = client.post(path_of(run), content=b'{"bad": true}', headers=gateway.headers())
        error = check_error(answer, 500, "function_error", reason="FunctionError")
        assert error["details"]["type"] == "ValueError"
        assert "no good" in error["details"]["message"]
        assert client.post(path_of(run), content=b"{}", headers=gateway.headers()).status_code == 200
        again = api.run(run["metadata"]["name"])
        assert again is not None and again["status"]["phase"] == "Ready"
        assert again["status"]["attempt"] == 1


def test_the_deadline_504_and_the_next_call_is_served_at_once(api: Api, gateway: Gateway) -> None:
    source = "def handler(event):\n    while event.get('spin'):\n        pass\n    return 'done'\n"
    with api.function(source) as run, gateway.client() as client:
        headers = gateway.headers({"x-kruntime-timeout-ms": "300"})
        answer = client.post(path_of(run), content=b'{"spin": true}', headers=headers)
        check_error(answer, 504, "timeout")
        assert client.post(path_of(run), content=b"{}", headers=gateway.headers()).status_code == 200


def test_a_run_made_again_under_its_name_never_serves_the_old_code(api: Api, gateway: Gateway) -> None:
    name = f"t-{uuid.uuid4().hex[:10]}"
    old_source, new_source = ("def handler(event):\n    return 'old'\n", "def handler(event):\n    return 'new'\n")
    api.declare(name, old_source, handler="case.handler")
    old = api.ready(name)
    with gateway.client() as client:
        assert client.post(path_of(old), content=b"{}", headers=gateway.headers()).text == "old"
        api.delete(name)
        api.declare(name, new_source, handler="case.handler")
        new = api.ready(name)
        assert client.post(path_of(new), content=b"{}", headers=gateway.headers()).text == "new"
        check_error(client.post(path_of(old), content=b"{}", headers=gateway.headers()), 404, "rejected")
        api.delete(name)
