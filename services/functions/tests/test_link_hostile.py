"""Hostile payloads on the link, and hostile output: nothing changes for any other function."""

import asyncio

import pytest

from kruntimes.functions.bounds import Bounds
from kruntimes.functions.handlers import Inline
from kruntimes.functions.ingress import Ingress
from kruntimes.functions.invocation import Invocation, Why
from kruntimes.functions.manager import Manager
from kruntimes.functions.wire.encode import encode_call, encode_cancel, encode_quit
from kruntimes.functions.wire.events import Call, Mode, Progress, Result, Violation
from kruntimes.functions.wire.results import ResultDecoder

HOSTILE = [
    pytest.param(b"QUIT\n", id="quit"),
    pytest.param(b"\nQUIT\n", id="quit-on-a-line-of-its-own"),
    pytest.param(b"FUNCTION_CANCEL victim\n", id="cancel"),
    pytest.param(b"\nFUNCTION_PAYLOAD_END\nFUNCTION_CANCEL victim\nQUIT\n", id="end-line-and-commands"),
    pytest.param(b"\nFUNCTION_PAYLOAD_END\nFUNCTION evil 1 echo 0 s\n", id="end-line-and-a-call"),
    pytest.param(b"\nFUNCTION_RESULT_END\nFUNCTION_RESULT_BEGIN victim 200 a 0 meta=0 len=0\n", id="a-result"),
    pytest.param(b"FUNCTION_PROGRESS victim 9 9\n", id="progress"),
    pytest.param(b"\x00" * 64, id="nuls"),
    pytest.param(b"\xff\xfe\r\n\r\n\x1c\xe2\x80\xa8", id="line-ends-of-every-kind"),
    pytest.param(b"FUNCTION_PAYLOAD tx 1 'echo len=9' 0 s t\n", id="a-payload-inside-a-payload"),
    pytest.param(b"", id="nothing"),
]


class Victim:
    """A call that runs all the while; whatever reaches it fails the test."""

    def start(self, invocation: Invocation) -> None:
        self.invocation = invocation

    def stop(self, invocation: Invocation, why: Why) -> None:
        raise AssertionError(f"the other function was told to stop: {why}")

    def kill(self, invocation: Invocation) -> None:
        raise AssertionError("the other function was killed")


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("cut", [1, 7, 4096])
async def test_no_payload_is_ever_read_as_a_command(hostile: bytes, cut: int) -> None:
    seen: list[bytes | None] = []

    def echo(invocation: Invocation) -> Result:
        seen.append(invocation.call.payload)
        return invocation.answer(invocation.call.payload or b"", content_type="a/b", meta=hostile[:16])

    written: list[bytes] = []
    ended: list[bool] = []
    manager, victim = Manager(Bounds(workers=4)), Victim()
    manager.register("echo", Inline(echo))
    manager.register("victim", victim)
    ingress = Ingress(manager, Mode.LINK, written.append, on_end=lambda: ended.append(True))
    stream = b"".join(
        encode_call(Call(uid=uid, timeout=60, function=name, content_type="a/b", payload=payload), Mode.LINK)
        for uid, name, payload in (("victim", "victim", b"x"), ("h1", "echo", hostile), ("after", "echo", b"after"))
    )
    for at in range(0, len(stream), cut):
        ingress.feed(stream[at : at + cut])
    assert seen == [hostile, b"after"]
    assert not ended
    assert manager.stats.active == 1
    assert (manager.stats.calls, manager.stats.rejected) == (3, {})
    victim.invocation.complete(victim.invocation.answer(b"unharmed", content_type="a/b"))
    events = ResultDecoder().feed(b"".join(written))
    assert [(event.uid, event.code, event.body) for event in events if isinstance(event, Result)] == [
        ("h1", 200, hostile), ("after", 200, b"after"), ("victim", 200, b"unharmed"),
    ]  # fmt: skip
    assert len(events) == 3
    assert await manager.stop()


async def test_the_links_own_commands_do_work() -> None:
    written: list[bytes] = []
    ended: list[bool] = []
    told: list[Why] = []

    class Host:
        def start(self, invocation: Invocation) -> None:
            invocation.progress(1, 3)

        def stop(self, invocation: Invocation, why: Why) -> None:
            told.append(why)
            invocation.complete(invocation.answer(b"", code=499))

        def kill(self, invocation: Invocation) -> None:
            raise AssertionError("it had answered")

    manager = Manager()
    manager.register("fn", Host())
    ingress = Ingress(manager, Mode.LINK, written.append, on_end=lambda: ended.append(True))
    ingress.feed(
        encode_call(Call(uid="t", timeout=5, function="fn", args=("timeout_ms=soon",), payload=b""), Mode.LINK)
    )
    ingress.feed(encode_call(Call(uid="u", timeout=5, function="fn", args=("timeout_ms=500",), payload=b""), Mode.LINK))
    ingress.feed(encode_cancel("u"))
    ingress.feed(encode_quit())
    events = ResultDecoder().feed(b"".join(written))
    assert [(event.uid, event.code if isinstance(event, Result) else event) for event in events
            if not isinstance(event, Violation)] == [
        ("t", 400), ("u", Progress(uid="u", done=1, total=3)), ("u", 499),
    ]  # fmt: skip
    assert told == [Why.CANCELLED]
    assert ended == [True]
    assert await manager.stop()


async def test_a_broken_link_is_told_once_and_not_read_on() -> None:
    ended: list[bool] = []
    manager = Manager()
    manager.register("fn", Inline(lambda invocation: invocation.answer(b"")))
    ingress = Ingress(manager, Mode.LINK, lambda _: None, on_end=lambda: ended.append(True))
    ingress.feed(b"hello\n" + encode_call(Call(uid="t", timeout=5, function="fn", payload=b""), Mode.LINK))
    ingress.feed(encode_call(Call(uid="u", timeout=5, function="fn", payload=b""), Mode.LINK))
    await asyncio.sleep(0)
    assert ended == [True]
    assert manager.stats.calls == 0
    assert await manager.stop()


async def test_a_caller_that_has_gone_takes_its_calls_with_it_and_no_others() -> None:
    written: dict[str, list[bytes]] = {"one": [], "two": []}
    manager = Manager(Bounds(workers=4))
    hosts: dict[str, Invocation] = {}

    class Host:
        def start(self, invocation: Invocation) -> None:
            hosts[invocation.uid] = invocation

        def stop(self, invocation: Invocation, why: Why) -> None:
            invocation.complete(invocation.answer(b"", code=499))

        def kill(self, invocation: Invocation) -> None:
            raise AssertionError("it answers when it is told to stop")

    callers = {}
    for name in written:
        manager.register(name, Host())
        callers[name] = Ingress(manager, Mode.LINK, written[name].append, on_end=lambda: None)
        callers[name].feed(encode_call(Call(uid=name, timeout=5, function=name, payload=b""), Mode.LINK))
    callers["one"].abandon()
    assert written["one"] == []
    assert [invocation.uid for invocation in manager.active()] == ["two"]
    assert manager.active(key="one") == []
    hosts["two"].complete(hosts["two"].answer(b"unharmed"))
    assert b"unharmed" in written["two"][0]
    assert await manager.stop()
