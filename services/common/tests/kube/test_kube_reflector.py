"""The reflector on a real socket, against a server that does what servers do on bad days."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from tests.kube.kube_faults import FaultyServer, Handler, hang, html, line, listing, reset, status, thing, until

from kruntimes.common import clock
from kruntimes.common.api.views import Object
from kruntimes.common.kube import backoff, paths, reflector
from kruntimes.common.kube.lines import Lines
from kruntimes.common.kube.reflector import Reflector
from kruntimes.common.kube.transport import Kube

PATH = paths.configmaps("ns")
Write = Callable[[bytes], Awaitable[None]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rules with shorter waits."""
    monkeypatch.setattr(reflector, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(reflector, "LONGEST_WAIT_SECONDS", 0.05)


class Script:
    """Lists what *things* holds and serves one watch after another from *watches*; the last one stays open."""

    def __init__(self, server: FaultyServer) -> None:
        self.things: list[dict[str, object]] = []
        self.version = 1
        self.lists: list[Handler] = []
        self.watches: list[Handler] = []
        self.from_versions: list[str] = []
        self.listed = 0
        server.answer = self.answer

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            self.listed += 1
            if self.lists:
                return await self.lists.pop(0)(request)
            return listing(*self.things, version=self.version)
        self.from_versions.append(request.query["resourceVersion"])
        return await (self.watches.pop(0) if self.watches else events())(request)


def events(*pieces: bytes, then: Handler | None = hang) -> Handler:
    """A watch that says *pieces*, and then hangs, or does *then*, or (None) ends."""

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if then is not None:
            await then(request)
        return response

    return handle


def refuse(code: int, reason: str, **headers: str) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return status(code, reason, **headers)

    return handle


@asynccontextmanager
async def running(kube: Kube, **options: object) -> AsyncIterator[tuple[Reflector[Object], list[str]]]:
    changed: list[str] = []
    reflected = Reflector(kube, PATH, Object, on_change=changed.append, **options)  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reflected.run())
        try:
            yield reflected, changed
        finally:
            task.cancel()


def _version(reflected: Reflector[Object], name: str) -> str | None:
    found = reflected.store.get(f"ns/{name}")
    return None if found is None else found.metadata.resource_version


async def test_list_then_watch(server: FaultyServer, kube: Kube) -> None:
    script = Script(server)
    script.things = [thing("a", 1)]
    script.watches = [events(line("ADDED", thing("b", 2)), line("DELETED", thing("a", 3)))]
    async with running(kube) as (reflected, changed):
        await until(lambda: changed == ["ns/a", "ns/b", "ns/a"])
        assert reflected.synced.is_set()
        assert list(reflected.store) == ["ns/b"]
        assert reflected.healthy_since() is not None
    query = server.seen[1].query
    assert (query["allowWatchBookmarks"], query["resourceVersion"]) == ("true", "1")
    assert 0 < int(query["timeoutSeconds"]) <= 300


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(refuse(429, "TooManyRequests", Retry_After="1"), id="429"),
        pytest.param(refuse(403, "Forbidden"), id="403"),
        pytest.param(refuse(500, "InternalError"), id="500"),
        pytest.param(html, id="502-html"),
        pytest.param(reset, id="reset"),
        pytest.param(events(b"<html>not a watch</html>\n"), id="200-html"),
        pytest.param(events(line("ADDED", thing("x", 9))[:40], then=reset), id="truncated-line-then-reset"),
        pytest.param(events(line("ADDED", thing("x", 9))[:40], then=None), id="truncated-line-then-end"),
        pytest.param(events(then=None), id="ends-at-once"),
        pytest.param(events(line("ERROR", {"kind": "Status", "code": 500})), id="error-event"),
        pytest.param(events(b'{"kind":"Status","code":429,"status":"Failure"}\n'), id="a-status-as-an-event"),
    ],
)
async def test_a_broken_watch_goes_on_from_the_same_version(server: FaultyServer, kube: Kube, trouble: Handler) -> None:
    script = Script(server)
    script.watches = [trouble, events(line("ADDED", thing("a", 2)))]
    async with running(kube) as (reflected, changed):
        await until(lambda: changed == ["ns/a"])
        assert reflected.healthy_since() is not None
    assert script.from_versions == ["1", "1"]
    assert script.listed == 1
    assert "ns/x" not in reflected.store


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(refuse(410, "Expired"), id="410-as-http"),
        pytest.param(events(line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})), id="410-as-event"),
        pytest.param(events(b"x" * 40_000), id="a-line-beyond-the-bound"),
    ],
)
async def test_410_means_list_again_and_deletes_what_went(
    server: FaultyServer, kube: Kube, trouble: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "Lines", lambda: Lines(limit=20_000))
    script = Script(server)
    script.things = [thing("a", 1), thing("b", 1)]

    async def then(request: web.Request) -> web.StreamResponse:
        script.things, script.version = [thing("b", 7)], 9
        return await trouble(request)

    script.watches = [then]
    async with running(kube) as (reflected, changed):
        await until(lambda: changed == ["ns/a", "ns/b", "ns/a", "ns/b"])
        await until(lambda: script.from_versions == ["1", "9"])
        assert list(reflected.store) == ["ns/b"]
        assert reflected.relists == 2


async def test_a_page_that_expires_starts_the_list_anew(server: FaultyServer, kube: Kube) -> None:
    script = Script(server)
    script.things = [thing("a", 1)]

    async def first_page(request: web.Request) -> web.StreamResponse:
        return listing(thing("z", 1), version=1, cont="more")

    script.lists = [first_page, refuse(410, "Expired")]
    async with running(kube) as (reflected, _):
        await reflected.synced.wait()
        assert list(reflected.store) == ["ns/a"]


async def test_a_line_of_several_megabytes_arrives_whole(server: FaultyServer, kube: Kube) -> None:
    script = Script(server)
    large = line("ADDED", thing("large", 2, source="\u0001<é" * 500_000))
    assert len(large) > 5_000_000
    script.watches = [events(large, line("ADDED", thing("after", 3)))]
    async with running(kube) as (reflected, changed):
        await until(lambda: changed == ["ns/large", "ns/after"])
        assert reflected.undecodable == 0


async def test_a_silent_watch_counts_as_broken_and_is_opened_again(server: FaultyServer, kube: Kube) -> None:
    script = Script(server)
    script.watches = [events(), events(line("ADDED", thing("a", 2)))]
    async with running(kube, silence=0.2) as (_, changed):
        await until(lambda: changed == ["ns/a"])
    assert script.from_versions[:2] == ["1", "1"]


async def test_an_idle_watch_is_opened_anew_in_silence_and_stays_healthy(
    server: FaultyServer, kube: Kube, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A collection that nobody writes to gets no bookmarks either; that is no trouble, and nothing was missed."""
    monkeypatch.setattr(reflector, "IDLE_SECONDS", 0.2)
    monkeypatch.setattr(reflector, "SHORT_WATCH_SECONDS", 0.0)
    script = Script(server)
    async with running(kube) as (reflected, _):
        await until(reflected.healthy_since)
        since = reflected.healthy_since()
        await until(lambda: len(script.from_versions) >= 4)
        assert reflected.healthy_since() == since
    assert script.listed == 1
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


async def test_where_silence_is_a_proof_an_idle_watch_is_broken(
    server: FaultyServer, kube: Kube, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reflector, "SHORT_WATCH_SECONDS", 0.0)
    script = Script(server)
    script.watches = [events(), *[hang] * 3]
    async with running(kube, silence=0.2) as (reflected, _):
        await until(lambda: len(script.from_versions) >= 2)
        assert reflected.healthy_since() is None
    assert "watch broken" in caplog.text


async def test_health_ends_with_silence_even_before_the_connection_is_given_up(
    server: FaultyServer, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    Script(server)
    async with running(kube, silence=3600.0) as (reflected, _):
        await until(reflected.healthy_since)
        now = clock.monotonic()
        monkeypatch.setattr(clock, "monotonic", lambda: now + 3601)
        assert reflected.healthy_since() is None


async def test_health_begins_anew_when_we_ourselves_have_slept(
    server: FaultyServer, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a stopped process goes on, what the socket holds is old; nothing may be concluded from before."""
    script = Script(server)
    speak = asyncio.Event()

    async def wait_then_speak(request: web.Request) -> web.StreamResponse:
        await speak.wait()
        return web.Response()

    async def watch(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await wait_then_speak(request)
        await response.write(line("ADDED", thing("a", 2)))
        return await hang(request)

    script.watches = [watch]
    async with running(kube, silence=3600.0) as (reflected, changed):
        await until(reflected.healthy_since)
        before = clock.monotonic()
        monkeypatch.setattr(clock, "monotonic", lambda: before + 4000)
        speak.set()
        await until(lambda: changed == ["ns/a"])
        await until(reflected.healthy_since)
        assert reflected.healthy_since() == before + 4000


async def test_health_survives_a_watch_that_the_server_ends_in_time(
    server: FaultyServer, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "SHORT_WATCH_SECONDS", 0.0)
    script = Script(server)
    end = asyncio.Event()

    async def until_told(request: web.Request) -> web.StreamResponse:
        await end.wait()
        return web.Response()

    script.watches = [events(then=until_told)]
    async with running(kube) as (reflected, _):
        await until(reflected.healthy_since)
        since = reflected.healthy_since()
        end.set()
        await until(lambda: len(script.from_versions) == 2)
        await until(reflected.healthy_since)
        assert reflected.healthy_since() == since


async def test_a_broken_watch_is_not_healthy(server: FaultyServer, kube: Kube) -> None:
    script = Script(server)
    script.watches = [events(line("ADDED", thing("a", 2)), then=reset), *[hang] * 3]
    async with running(kube) as (reflected, changed):
        await until(lambda: changed == ["ns/a"])
        await until(lambda: reflected.healthy_since() is None)
        assert reflected.store, "what is known stays"


async def test_a_stream_that_ends_at_once_does_not_spin(
    server: FaultyServer, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In virtual terms: the waits double; counted over ten tries, they add up."""
    waits: list[float] = []
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if seconds:
            waits.append(seconds)
        await real_sleep(0)

    monkeypatch.setattr(reflector, "FIRST_WAIT_SECONDS", 0.25)
    monkeypatch.setattr(reflector, "LONGEST_WAIT_SECONDS", 20.0)
    monkeypatch.setattr(backoff, "draw", lambda: 0.5)
    script = Script(server)
    script.watches = [events(line("BOOKMARK", thing("", 2)), then=None) for _ in range(10)]
    monkeypatch.setattr(reflector.asyncio, "sleep", sleep)
    async with running(kube):
        async with asyncio.timeout(20):
            while len(script.from_versions) < 11:
                await real_sleep(0.005)
    assert all(0.125 <= wait <= 20 for wait in waits)
    assert sum(waits[:10]) > 60


async def test_metadata_only_asks_for_nothing_else(server: FaultyServer, kube: Kube) -> None:
    Script(server)
    async with running(kube, metadata_only=True, label_selector="a=b", field_selector="c=d") as (reflected, _):
        await until(reflected.healthy_since)
    listed, watched = server.seen[0], server.seen[1]
    assert listed.headers["accept"].startswith("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
    assert watched.headers["accept"].startswith("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
    for seen in (listed, watched):
        assert (seen.query["labelSelector"], seen.query["fieldSelector"]) == ("a=b", "c=d")


async def test_an_error_of_the_consumer_is_not_taken_for_one_of_the_server(server: FaultyServer, kube: Kube) -> None:
    Script(server).things = [thing("a", 1)]

    def broken(key: str) -> None:
        raise ValueError(key)

    with pytest.raises(ValueError, match="ns/a"):
        await asyncio.wait_for(Reflector(kube, PATH, Object, on_change=broken).run(), 20)


async def test_trouble_is_told_once(server: FaultyServer, kube: Kube, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    script = Script(server)
    script.watches = [*[refuse(403, "Forbidden")] * 4, events(line("ADDED", thing("a", 2)))]
    async with running(kube) as (_, changed):
        await until(lambda: changed)
        await until(lambda: "watch restored" in caplog.text)
    assert [record.message for record in caplog.records if "watch" in record.message] == [
        "watch broken",
        "watch restored",
    ]
