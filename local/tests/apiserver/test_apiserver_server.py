"""The server over real TLS on loopback: who gets in, bounds, streams, slow readers, logs of nodes, start and end."""

import asyncio
import base64
import json
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.apiserver.plane import POD

from kruntimes.common import clock, protobuf
from kruntimes.local.apiserver import assemble, bootstrap, exchange, streams, watch
from kruntimes.local.apiserver.__main__ import main
from kruntimes.local.apiserver.api import Api
from kruntimes.local.apiserver.certificates import Authority, node_context, private_file, server_context
from kruntimes.local.apiserver.encoding import Encoded
from kruntimes.local.apiserver.node_logs import NodeLogs
from kruntimes.local.apiserver.server import Server

Json = dict[str, Any]
WAIT_SECONDS = 20.0
MAPS = "/api/v1/namespaces/default/configmaps"


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def eventually(check: Callable[[], bool]) -> None:
    """Waits until *check* is true."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not check():
            await asyncio.sleep(0.01)


class Case:
    """A server in this process, and an administrator's client."""

    def __init__(self, api: Api, url: str, admin: aiohttp.ClientSession, anyone: aiohttp.ClientSession) -> None:
        self.api, self.url, self.admin, self.anyone = api, url, admin, anyone

    async def call(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Json]:
        """One request as the administrator."""
        data = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **headers}
        async with self.admin.request(method, self.url + path, data=data, headers=sent) as answer:
            return answer.status, json.loads(await answer.read())

    async def make(self, plural: str, name: str, **rest: Any) -> Json:
        """Creates an object of the core group in `default`."""
        path = f"/api/v1/namespaces/default/{plural}" if plural != "nodes" else "/api/v1/nodes"
        code, body = await self.call("POST", path, {"metadata": {"name": name}, **rest})
        assert code == 201, body
        return body


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[Case]:
    """A running server."""
    now = clock.utcnow()
    authority, encoded = Authority.in_folder(tmp_path, now=now), Encoded()
    counter = iter(range(1, 1_000_000))
    api = Api(
        assemble.parts(tmp_path, authority),
        now=clock.utcnow,
        uid=lambda: f"{next(counter):08x}-0000-4000-8000-000000000000",
        suffix=lambda: f"{next(counter):05}",
        size=encoded.size,
        first_version=1000,
    )
    port = free_port()
    for path, namespace, obj in bootstrap.objects(client_ca=authority.pem.decode(), port=port):
        resource = api.resources.find(*path)
        assert resource is not None
        api.create(resource, namespace, obj)
    logs = NodeLogs(api, lambda: node_context(tmp_path, authority, now=now))
    server = Server(api, now=clock.utcnow, logs=logs, encoded=encoded)
    await server.start("127.0.0.1", port, server_context(tmp_path, authority, "127.0.0.1", now=now))
    key, certificate = authority.client("kubernetes-admin", "system:masters", now=now)
    private_file(tmp_path / "admin.pem", key + certificate)
    contexts = [ssl.create_default_context(cadata=authority.pem.decode()) for _ in range(2)]
    contexts[0].load_cert_chain(tmp_path / "admin.pem")
    admin, anyone = (aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls, limit=0)) for tls in contexts)
    try:
        yield Case(api, f"https://127.0.0.1:{port}", admin, anyone)
    finally:
        await admin.close()
        await anyone.close()
        await server.close()


class Stream:
    """An open watch: its events one by one."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def next(self) -> Json | None:
        """The next event; None at the end."""
        async with asyncio.timeout(WAIT_SECONDS):
            line = await self._answer.content.readline()
        found: Json | None = json.loads(line) if line else None
        return found


@asynccontextmanager
async def watching(case: Case, path: str, **query: str) -> AsyncIterator[Stream]:
    """A watch, open."""
    async with case.admin.get(case.url + path, params={"watch": "1", **query}) as answer:
        assert answer.status == 200
        yield Stream(answer)


# ---------------------------------------------------------------- who and how


async def test_openapi_2_names_no_kind(case: Case) -> None:
    """In both forms; kubectl takes only the message, and reads fields 1 (swagger) and 2 (info) of it."""
    code, found = await case.call("GET", "/openapi/v2")
    assert (code, found["swagger"], found["paths"]) == (200, "2.0", {})
    accept = {"Accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
    async with case.admin.get(f"{case.url}/openapi/v2", headers=accept) as answer:
        assert (answer.status, answer.headers["Content-Type"]) == (200, accept["Accept"].replace("@", "."))
        fields = dict(protobuf.fields(await answer.read()))
    assert fields[1] == b"2.0"
    info = fields[2]
    assert isinstance(info, bytes)
    assert dict(protobuf.fields(info)) == {
        1: found["info"]["title"].encode(),
        2: found["info"]["version"].encode(),
    }


async def test_who_gets_in(case: Case) -> None:
    async with case.anyone.get(case.url + "/readyz") as answer:
        assert (answer.status, await answer.text()) == (200, "ok")
    async with case.anyone.get(case.url + MAPS) as answer:
        assert answer.status == 403
        assert (await answer.json())["message"] == (
            'configmaps is forbidden: User "system:anonymous" cannot list resource "configmaps" in API group "" in the '
            'namespace "default"'
        )
    async with case.anyone.get(case.url + MAPS, headers={"Authorization": "Bearer x"}) as answer:
        assert answer.status == 401
    assert (await case.call("GET", MAPS))[0] == 200


async def test_a_certificate_of_another_authority_is_none(case: Case, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stranger = Authority.in_folder(tmp_path / "other", now=clock.utcnow())
    key, certificate = stranger.client("kubernetes-admin", "system:masters", now=clock.utcnow())
    private_file(tmp_path / "stranger.pem", key + certificate)
    tls = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    tls.load_cert_chain(tmp_path / "stranger.pem")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as client:
        with pytest.raises(aiohttp.ClientError):
            await client.get(case.url + MAPS)


async def test_a_body_is_bounded_however_it_is_sent(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MAX_BODY", 1000)
    code, body = await case.call("POST", MAPS, {"metadata": {"name": "a"}, "data": {"x": "y" * 1000}})
    assert (code, body["message"]) == (413, "Request entity too large: limit is 1000")

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 100

    headers = {"Content-Type": "application/json"}
    async with case.admin.post(case.url + MAPS, data=pieces(), headers=headers) as answer:
        assert answer.status == 413


async def test_an_address_is_bounded(case: Case) -> None:
    async with case.admin.get(case.url + MAPS, params={"labelSelector": "x" * 20_000}) as answer:
        assert answer.status == 400


async def test_a_fault_of_the_server_tells_nothing(
    case: Case, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(case.api, "get", lambda *a: 1 / 0)
    code, body = await case.call("GET", f"{MAPS}/a")
    assert (code, body["reason"]) == (500, "InternalError")
    assert "ZeroDivision" not in str(body)
    assert "ZeroDivision" in caplog.text


async def test_warnings_are_headers(case: Case) -> None:
    sent = json.dumps({"metadata": {"name": "a"}, 'odd "one"': 1})
    headers = {"Content-Type": "application/json"}
    async with case.admin.post(case.url + MAPS, data=sent, headers=headers) as answer:
        assert answer.headers["Warning"] == '299 - "unknown field \\"odd \\\\"one\\\\"\\""'.replace('\\\\"', '\\"')


# ---------------------------------------------------------------- lists and watches


async def test_a_long_list_comes_in_slices_and_is_whole(case: Case) -> None:
    for i in range(50):
        await case.make("configmaps", f"a{i:02}", data={"x": "y" * 1000})
    _, body = await case.call("GET", MAPS)
    assert [item["metadata"]["name"] for item in body["items"]] == [f"a{i:02}" for i in range(50)]
    assert "kind" not in body["items"][0]
    _, page = await case.call("GET", f"{MAPS}?limit=20")
    await case.call("DELETE", f"{MAPS}/a30")
    _, rest = await case.call("GET", f"{MAPS}?continue={page['metadata']['continue']}")
    assert len(page["items"]) + len(rest["items"]) == 50
    assert rest["metadata"]["resourceVersion"] == page["metadata"]["resourceVersion"]


async def test_lists_are_read_while_objects_are_written(case: Case) -> None:
    """Each list shows one moment, whatever happens while it is sent."""
    for i in range(60):
        await case.make("configmaps", f"a{i:02}", data={"x": "0"})

    async def write() -> None:
        patched = {"Content-Type": "application/merge-patch+json"}
        for n in range(1, 20):
            for i in (0, 59):
                await case.call("PATCH", f"{MAPS}/a{i:02}", {"data": {"x": str(n)}}, **patched)

    writer = asyncio.create_task(write())
    while not writer.done():
        _, body = await case.call("GET", MAPS)
        version = int(body["metadata"]["resourceVersion"])
        assert all(int(item["metadata"]["resourceVersion"]) <= version for item in body["items"])
        first, last = int(body["items"][0]["data"]["x"]), int(body["items"][-1]["data"]["x"])
        assert 0 <= first - last <= 1
    await writer


async def test_a_watch_begins_where_a_list_ends(case: Case) -> None:
    await case.make("configmaps", "a")
    _, listed = await case.call("GET", MAPS)
    await case.make("configmaps", "b")
    async with watching(case, MAPS, resourceVersion=listed["metadata"]["resourceVersion"]) as events:
        await case.make("configmaps", "c")
        told = [await events.next(), await events.next()]
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in told if e] == [("ADDED", "b"), ("ADDED", "c")]


async def test_a_version_of_an_earlier_life_is_told_inside_the_stream(case: Case) -> None:
    async with watching(case, MAPS, resourceVersion="999") as events:
        event = await events.next()
        assert event is not None
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        assert await events.next() is None


async def test_bookmarks_come_by_themselves(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BOOKMARK_SECONDS", 0.05)
    version = str(case.api.store.version)
    async with watching(case, MAPS, resourceVersion=version, allowWatchBookmarks="true") as events:
        assert (await events.next() or {})["type"] == "BOOKMARK"
        await case.make("configmaps", "a")
        seen = []
        while not seen or seen[-1]["type"] != "ADDED":
            event = await events.next()
            assert event is not None
            seen.append(event)
        mark = await events.next() or {}
        assert mark["type"] == "BOOKMARK"
        assert int(mark["object"]["metadata"]["resourceVersion"]) >= case.api.store.version


async def test_a_watch_ends_in_time_and_the_connection_lives_on(case: Case) -> None:
    async with watching(case, MAPS, resourceVersion=str(case.api.store.version), timeoutSeconds="1") as events:
        assert await events.next() is None


async def test_a_slow_reader_loses_its_watch_and_nobody_else_is_held_up(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "QUEUE_BYTES", 200_000)
    since = str(case.api.store.version)
    async with watching(case, MAPS, resourceVersion=since), watching(case, MAPS, resourceVersion=since) as quick:
        for i in range(150):
            # What sockets hold comes on top of the queue.
            await case.make("configmaps", f"a{i}", data={"x": "y" * 60_000})
            assert await quick.next() is not None
        await eventually(lambda: len(_watchers(case)) == 1)


def _watchers(case: Case) -> list[watch.Watcher]:
    """The watchers of ConfigMaps that the server holds."""
    hubs = {getattr(listener, "__self__", None) for listener in case.api._listeners}
    [hub] = [each for each in hubs if isinstance(each, watch.Hub)]
    return list(hub._watchers.get(("", "configmaps"), {}))


async def test_a_reader_that_goes_away_is_forgotten(case: Case) -> None:
    for _ in range(5):
        async with watching(case, MAPS):
            assert len(_watchers(case)) >= 1
    for i in range(3):
        await case.make("configmaps", f"a{i}")
    await eventually(lambda: not _watchers(case))


# ---------------------------------------------------------------- logs


class Node:
    """A node's log server that remembers who asked and for what."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], str]] = []
        self.ended = asyncio.Event()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Two lines; with `follow` until the reader goes away."""
        assert request.transport is not None
        subject = dict(pair for part in request.transport.get_extra_info("peercert")["subject"] for pair in part)
        self.asked.append((request.path, dict(request.query), subject["commonName"]))
        if request.match_info["container"] == "silent":
            raise web.HTTPNotFound(text="container silent has not logged anything")
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\ntwo\n")
        if "follow" in request.query:
            try:
                for i in range(10_000):
                    await response.write(b"%d\n" % i)
                    await asyncio.sleep(0.01)
            except ConnectionError:
                pass
            finally:
                self.ended.set()
        return response


@asynccontextmanager
async def node(case: Case, folder: Path) -> AsyncIterator[Node]:
    """A node with a Pod of two containers."""
    made = Node()
    authority = Authority.in_folder(folder, now=clock.utcnow())
    tls = server_context(folder, authority, "127.0.0.1", now=clock.utcnow())
    tls.verify_mode = ssl.CERT_REQUIRED
    app = web.Application()
    app.add_routes([web.get("/containerLogs/{namespace}/{pod}/{container}", made.serve)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": runner.addresses[0][1]}},
    }
    await case.make("nodes", "here", status=status)
    await case.make("nodes", "dumb")
    await case.make("serviceaccounts", "default")
    two = {"containers": [*POD["containers"], {"name": "silent", "image": "x"}]}
    await case.make("pods", "one", spec={**POD, "nodeName": "here"})
    await case.make("pods", "two", spec={**two, "nodeName": "here"})
    await case.make("pods", "free", spec=POD)
    await case.make("pods", "lost", spec={**POD, "nodeName": "dumb"})
    try:
        yield made
    finally:
        await runner.cleanup()


PODS = "/api/v1/namespaces/default/pods"


async def test_logs_come_from_the_node(case: Case, tmp_path: Path) -> None:
    async with node(case, tmp_path) as there:
        async with case.admin.get(f"{case.url}{PODS}/one/log?tailLines=5&pretty=1") as answer:
            assert (answer.status, answer.content_type, await answer.text()) == (200, "text/plain", "one\ntwo\n")
        assert there.asked == [("/containerLogs/default/one/main", {"tailLines": "5"}, "kube-apiserver-kubelet-client")]


async def test_logs_are_followed_until_the_reader_goes(case: Case, tmp_path: Path) -> None:
    async with node(case, tmp_path) as there:
        async with case.admin.get(f"{case.url}{PODS}/one/log?follow=true") as answer:
            lines = [await answer.content.readline() for _ in range(5)]
        assert lines[:3] == [b"one\n", b"two\n", b"0\n"]
        async with asyncio.timeout(WAIT_SECONDS):
            await there.ended.wait()


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ("nope/log", 404, 'pods "nope" not found'),
        ("lost/log", 500, "node dumb tells no address for logs"),
        ("two/log", 400, "a container name must be specified for pod two, choose one of: [main silent]"),
        ("two/log?container=other", 400, "container other is not valid for pod two"),
        ("two/log?container=silent", 404, "container silent has not logged anything"),
    ],
)
async def test_logs_that_are_not_there(case: Case, tmp_path: Path, path: str, code: int, message: str) -> None:
    async with node(case, tmp_path):
        found, body = await case.call("GET", f"{PODS}/{path}")
    assert (found, message in body["message"]) == (code, True), body


async def test_a_pod_without_a_node_has_logged_nothing(case: Case, tmp_path: Path) -> None:
    async with node(case, tmp_path), case.admin.get(f"{case.url}{PODS}/free/log") as answer:
        assert (answer.status, await answer.read()) == (204, b"")


async def test_a_node_that_is_gone(case: Case, tmp_path: Path) -> None:
    async with node(case, tmp_path):
        pass
    code, body = await case.call("GET", f"{PODS}/one/log")
    assert (code, body["reason"]) == (500, "InternalError")


# ---------------------------------------------------------------- the process


@asynccontextmanager
async def process(state: Path, port: int) -> AsyncIterator[subprocess.Popen[bytes]]:
    """`python -m kruntimes.local.apiserver`, ready."""
    arguments = ["--listen", f"127.0.0.1:{port}", "--state", str(state)]
    with open(state.parent / "output", "wb") as output:
        started = subprocess.Popen(
            [sys.executable, "-m", "kruntimes.local.apiserver", *arguments], stdout=output, stderr=output
        )
    try:
        await eventually(lambda: started.poll() is not None or (state / "admin.kubeconfig").exists())
        assert started.poll() is None, (state.parent / "output").read_text()
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        await asyncio.to_thread(started.wait, WAIT_SECONDS)


async def through(state: Path, act: Callable[[aiohttp.ClientSession, str], Awaitable[Json]]) -> Json:
    """Does something with the kubeconfig that was written."""
    config = json.loads((state / "admin.kubeconfig").read_text())
    cluster, who = config["clusters"][0]["cluster"], config["users"][0]["user"]
    pem = base64.b64decode(who["client-key-data"]) + base64.b64decode(who["client-certificate-data"])
    private_file(state.parent / "client.pem", pem)
    tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    tls.load_cert_chain(state.parent / "client.pem")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as client:
        return await act(client, cluster["server"])


async def read(client: aiohttp.ClientSession, server: str) -> Json:
    """The namespaces."""
    async with client.get(server + "/api/v1/namespaces") as answer:
        found: Json = await answer.json()
        return found


async def test_a_server_starts_says_nothing_and_ends(tmp_path: Path) -> None:
    """Twice in one folder: its authority is the same, and the versions of the second life are above the first."""
    state, port = tmp_path / "state", free_port()
    state.mkdir()
    async with process(state, port) as first:
        found = await through(state, read)
        assert {"default", "kube-system"} <= {item["metadata"]["name"] for item in found["items"]}
        for name in ("admin.kubeconfig", "ca.pem", "serving.pem"):
            assert (state / name).stat().st_mode & 0o077 == 0, name
        authority = (state / "ca.crt").read_bytes()
    assert first.returncode == 0
    (state / "admin.kubeconfig").rename(state / "old.kubeconfig")
    async with process(state, port) as second:
        (state / "old.kubeconfig").rename(state / "admin.kubeconfig")
        again = await through(state, read)
    assert second.returncode == 0
    assert (state / "ca.crt").read_bytes() == authority
    assert int(again["metadata"]["resourceVersion"]) > int(found["metadata"]["resourceVersion"])
    assert (tmp_path / "output").read_bytes() == b""


@pytest.mark.parametrize("listen", ["127.0.0.1", ":80", "127.0.0.1:x"])
def test_an_address_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], listen: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--listen", listen, "--state", str(tmp_path)])
    assert ended.value.code == 2
    assert "--listen: not ADDRESS:PORT" in capsys.readouterr().err
