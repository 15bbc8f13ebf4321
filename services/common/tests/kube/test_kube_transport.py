"""What leaves on the wire, and what becomes of every kind of answer."""

import json
import sys
from pathlib import Path

import pytest
from aiohttp import web
from tests.kube.kube_faults import FaultyServer, Handler, hang, html, listing, reset, status, thing

from kruntimes.common.api.settings import SettingsError
from kruntimes.common.api.views import Meta, Object
from kruntimes.common.kube import errors, paths
from kruntimes.common.kube.credentials import TokenFile
from kruntimes.common.kube.transport import Kube

PATH = paths.configmaps("ns", "a")


async def _ok(request: web.Request) -> web.StreamResponse:
    return web.json_response(thing("a", 1))


async def test_a_caller_s_token_goes_alone(server: FaultyServer, kube: Kube) -> None:
    server.answer = _ok
    await kube.request("GET", PATH)
    await kube.request("GET", PATH, token="the-caller")
    await kube.request("GET", PATH)
    sent = [seen.headers["authorization"] for seen in server.seen]
    assert sent == ["Bearer our-own-token", "Bearer the-caller", "Bearer our-own-token"]
    assert not any("our-own-token" in str(seen) for seen in server.seen[1:2])


async def test_a_caller_s_token_leaves_without_our_client_certificate(control_plane: Path) -> None:
    """The administrator's kubeconfig speaks by certificate; were it presented, the answer would be 200."""
    kube = await Kube.connect(kubeconfig=control_plane)
    try:
        assert await kube.request("GET", paths.namespaces())
        with pytest.raises(errors.Unauthorized):
            await kube.request("GET", paths.namespaces(), token="not-a-token-of-this-server")
    finally:
        await kube.close()


@pytest.mark.parametrize("token", ["", "a b", "a\nX-Evil: 1", "ü", "x" * 70_000], ids=lambda t: repr(t[:10]))
async def test_a_token_that_no_header_can_carry_is_refused_here(server: FaultyServer, kube: Kube, token: str) -> None:
    with pytest.raises(errors.Unauthorized):
        await kube.request("GET", PATH, token=token)
    assert server.seen == []


async def test_the_environment_s_netrc_and_cookies_say_nothing(
    server: FaultyServer, kube: Kube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", str(netrc))

    async def with_cookie(request: web.Request) -> web.StreamResponse:
        return web.json_response(thing("a", 1), headers={"Set-Cookie": "identity=ours; Path=/"})

    server.answer = with_cookie
    await kube.request("GET", PATH, token="one")
    await kube.request("GET", PATH, token="two")
    assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer one", "Bearer two"]
    assert "cookie" not in server.seen[1].headers


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(hang, errors.Unreachable, id="hang"),
        pytest.param(reset, errors.Unreachable, id="reset"),
        pytest.param(html, errors.ServerError, id="502-html"),
    ],
)
@pytest.mark.parametrize("token", [None, "the-caller"], ids=["own", "caller"])
async def test_faults(
    server: FaultyServer, kube: Kube, answer: Handler, kind: type[errors.ApiError], token: str | None
) -> None:
    server.answer = answer
    with pytest.raises(kind):
        await kube.request("GET", PATH, token=token, timeout=0.2)


async def test_a_body_that_breaks_off_or_hangs_is_unreachable(server: FaultyServer, kube: Kube) -> None:
    async def half(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"metadata":')
        return await (reset if request.query else hang)(request)

    server.answer = half
    for query in ({}, {"reset": "1"}):
        with pytest.raises(errors.Unreachable):
            await kube.request("GET", PATH, query=query, timeout=0.2)


async def test_no_server_at_all_is_unreachable(tmp_path: Path) -> None:
    kube = await Kube.connect(kubeconfig=FaultyServer(url="http://127.0.0.1:1").kubeconfig(tmp_path, {"token": "t"}))
    with pytest.raises(errors.Unreachable):
        await kube.get(PATH, Object)
    await kube.close()


@pytest.mark.parametrize("body", [b"<html>", b"", b'{"metadata": 5}', b"\xff"], ids=repr)
async def test_a_good_status_with_a_bad_body_is_malformed(server: FaultyServer, kube: Kube, body: bytes) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body)

    server.answer = answer
    with pytest.raises(errors.Malformed):
        await kube.get(PATH, Object)


async def test_every_write_states_its_content_type_and_precondition(server: FaultyServer, kube: Kube) -> None:
    server.answer = _ok
    ops = [{"op": "test", "path": "/status/attempt", "value": 1}]
    await kube.patch_json(PATH, ops, Object)
    await kube.patch_merge(PATH, {"data": {}}, Object)
    await kube.apply(PATH, {"kind": "ConfigMap"}, Object, manager="me")
    await kube.create(paths.configmaps("ns"), Object(metadata=Meta(name="a")), Object)
    await kube.replace(PATH, {"kind": "ConfigMap"}, Object)
    await kube.delete(PATH, uid="u", resource_version="7", grace_seconds=0, propagation="Background")
    sent = [(seen.method, seen.headers["content-type"]) for seen in server.seen]
    assert sent == [
        ("PATCH", "application/json-patch+json"),
        ("PATCH", "application/merge-patch+json"),
        ("PATCH", "application/apply-patch+yaml"),
        ("POST", "application/json"),
        ("PUT", "application/json"),
        ("DELETE", "application/json"),
    ]
    assert json.loads(server.seen[0].body) == ops
    assert server.seen[2].query == {"fieldManager": "me", "force": "true"}
    assert json.loads(server.seen[3].body)["metadata"]["resourceVersion"] == ""
    assert json.loads(server.seen[5].body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
    }


async def test_bytes_go_as_they_are(server: FaultyServer, kube: Kube) -> None:
    server.answer = _ok
    await kube.request("POST", PATH, body=b"k8s\x00\xff", content_type="application/vnd.kubernetes.protobuf")
    await kube.request("POST", PATH, body=b'{"a": 1}')
    assert server.seen[0].body == b"k8s\x00\xff"
    assert json.loads(server.seen[1].body) == {"a": 1}


async def test_a_list_is_read_page_by_page(server: FaultyServer, kube: Kube) -> None:
    async def pages(request: web.Request) -> web.StreamResponse:
        at = int(request.query.get("continue", "0"))
        return listing(thing(f"t{at}", at), version=9, cont=str(at + 1) if at < 2 else "")

    server.answer = pages
    items, version = await kube.list(paths.configmaps(None), Object, label_selector="a=b", field_selector="c=d")
    assert [item.metadata.name for item in items] == ["t0", "t1", "t2"]
    assert version == "9"
    assert [seen.query.get("continue") for seen in server.seen] == [None, "1", "2"]
    assert all(seen.query["labelSelector"] == "a=b" and seen.query["fieldSelector"] == "c=d" for seen in server.seen)


async def test_an_empty_list_may_say_null(server: FaultyServer, kube: Kube) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"metadata": {"resourceVersion": "3"}, "items": None})

    server.answer = answer
    assert await kube.list(paths.configmaps(None), Object) == ([], "3")


async def test_a_401_makes_us_read_the_token_again_once(server: FaultyServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    kube = await Kube.connect(kubeconfig=server.kubeconfig(tmp_path, {"tokenFile": "token"}))

    async def only_new(request: web.Request) -> web.StreamResponse:
        good = request.headers["authorization"] == "Bearer new"
        return web.json_response(thing("a", 1)) if good else status(401, "Unauthorized")

    server.answer = only_new
    with pytest.raises(errors.Unauthorized):
        await kube.get(PATH, Object)
    assert len(server.seen) == 1, "the same token is not sent twice"
    token.write_text("new\n")
    await kube.get(PATH, Object)
    assert [seen.headers["authorization"] for seen in server.seen[1:]] == ["Bearer old", "Bearer new"]
    with pytest.raises(errors.Unauthorized):
        await kube.request("GET", PATH, token="callers")
    assert len(server.seen) == 4, "a caller's 401 is the caller's"
    await kube.close()


async def test_a_token_file_is_read_again_as_it_rotates_and_survives_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    source = TokenFile(path, reread=0.0)
    assert await source.header() == "Bearer one"
    path.write_text("two\n")
    assert await source.header() == "Bearer two"
    path.write_text("")
    assert await source.header() == "Bearer two"
    path.unlink()
    assert await source.header() == "Bearer two"
    path.write_text("three")
    assert await source.header() == "Bearer three"


async def test_a_token_file_is_not_read_for_every_request(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    source = TokenFile(path, reread=3600.0)
    await source.header()
    path.write_text("two")
    assert await source.header() == "Bearer one"
    source.refused()
    assert await source.header() == "Bearer two"


async def test_an_exec_plugin_of_a_kubeconfig_is_asked_again_after_a_401(server: FaultyServer, tmp_path: Path) -> None:
    token = tmp_path / "issued"
    token.write_text("first")
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "import json, pathlib, sys\n"
        f"token = pathlib.Path({str(token)!r}).read_text()\n"
        "json.dump({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
        " 'status': {'token': token}}, sys.stdout)\n"
    )
    exec_ = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(plugin)],
        "interactiveMode": "Never",
    }
    kube = await Kube.connect(kubeconfig=server.kubeconfig(tmp_path, {"exec": exec_}))

    async def only_second(request: web.Request) -> web.StreamResponse:
        good = request.headers["authorization"] == "Bearer second"
        return web.json_response(thing("a", 1)) if good else status(401, "Unauthorized")

    server.answer = only_second
    token.write_text("second")
    await kube.get(PATH, Object)
    assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer first", "Bearer second"]
    await kube.close()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(None, id="no-file"),
        pytest.param("", id="empty"),
        pytest.param("a: [", id="not-yaml"),
        pytest.param("current-context: nobody\ncontexts: []\nclusters: []\nusers: []\n", id="no-context"),
    ],
)
async def test_a_wrong_kubeconfig_ends_with_a_sentence(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SettingsError, match="kubeconfig"):
        await Kube.connect(kubeconfig=path)


async def test_neither_kubeconfig_nor_pod_ends_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SettingsError, match="KUBECONFIG"):
        await Kube.connect()


async def test_the_api_needs_no_client_library() -> None:
    import subprocess

    code = (
        "import sys, kruntimes.common.api.views, kruntimes.common.kube.reflector, kruntimes.common.kube.lease\n"
        "sys.exit('kubernetes_asyncio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
