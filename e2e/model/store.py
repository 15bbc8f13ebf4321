"""The API server of the model: objects in versions, watches that lag, and requests that may go wrong in every way."""

import asyncio
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

import msgspec
from model.virtual import Process

from kruntimes.common.api.names import FINALIZER
from kruntimes.common.kube import errors

Raw = dict[str, Any]


class Version:
    """One version of one object, as JSON and as whatever view somebody has asked for."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self._views: dict[Any, Any] = {}

    def view(self, kind: Any) -> Any:
        if kind not in self._views:
            self._views[kind] = msgspec.convert(self.raw, kind)
        return self._views[kind]


class Store:
    """The truth. Kinds are plural names, keys `namespace/name`.

    on_write: called with kind, key, and the versions before and after each write, so that nothing wrong stays unseen.
    """

    def __init__(self, on_write: Callable[[str, str, Raw | None, Raw | None], None]) -> None:
        self.objects: dict[str, dict[str, Version]] = {}
        self.log: dict[str, list[tuple[str, Version | None]]] = {}
        self.feeds: list[Feed] = []
        self._number = 0
        self._on_write = on_write

    def all(self, kind: str) -> dict[str, Version]:
        return self.objects.setdefault(kind, {})

    def get(self, kind: str, key: str) -> Version:
        if (found := self.all(kind).get(key)) is None:
            raise errors.Missing(status=404, reason="NotFound", message=key)
        return found

    def put(self, kind: str, key: str, raw: Raw) -> Version | None:
        """A new version; one that is being deleted and that nothing holds any more is gone with it."""
        self._number += 1
        raw["metadata"] = raw["metadata"] | {"resourceVersion": str(self._number)}
        if raw["metadata"].get("deletionTimestamp") and not raw["metadata"].get("finalizers") and kind == "runs":
            self.drop(kind, key)
            return Version(raw)
        version = Version(raw)
        self._write(kind, key, version)
        return version

    def drop(self, kind: str, key: str) -> None:
        if key in self.all(kind):
            self._number += 1
            self._write(kind, key, None)

    def change(self, kind: str, key: str, change: Callable[[Raw], None]) -> None:
        """A write by somebody who is sure of it."""
        if (found := self.all(kind).get(key)) is not None:
            raw = deepcopy(found.raw)
            change(raw)
            self.put(kind, key, raw)

    def delete(self, kind: str, key: str) -> None:
        """What `kubectl delete` does to a Run."""
        held = self.all(kind).get(key)
        if held is None:
            return
        if held.raw["metadata"].get("finalizers"):
            if not held.raw["metadata"].get("deletionTimestamp"):
                self.change(kind, key, lambda raw: raw["metadata"].update(deletionTimestamp="2027-01-15T08:00:00Z"))
        else:
            self.drop(kind, key)

    def patch(self, kind: str, key: str, ops: list[Any]) -> Version:
        """A JSON patch, whole or not at all."""
        held = self.get(kind, key)
        raw = dict(held.raw)
        for op in ops:
            _apply(raw, op)
        if held.raw["metadata"].get("deletionTimestamp"):
            added = FINALIZER in raw["metadata"].get("finalizers", ())
            if added and FINALIZER not in held.raw["metadata"].get("finalizers", ()):
                raise errors.Invalid(status=422, reason="Invalid", message="no new finalizers while it is deleted")
        version = self.put(kind, key, raw)
        assert version is not None
        return version

    def _write(self, kind: str, key: str, version: Version | None) -> None:
        before = self.all(kind).pop(key, None)
        if version is not None:
            self.all(kind)[key] = version
        self.log.setdefault(kind, []).append((key, version))
        self._on_write(kind, key, before and before.raw, version and version.raw)
        for feed in self.feeds:
            if feed.kind == kind:
                feed.news()


def _apply(raw: Raw, op: Any) -> None:
    """One operation; what it changes is copied first."""
    *parents, last = op["path"].split("/")[1:]
    place: Any = raw
    for part in parents:
        at = int(part) if isinstance(place, list) else part
        inner = place.get(at, {}) if isinstance(place, dict) else place[at]
        place[at] = list(inner) if isinstance(inner, list | tuple) else dict(inner)
        place = place[at]
    at = int(last) if isinstance(place, list) else last
    if op["op"] == "test":
        held = (place[at] if at < len(place) else None) if isinstance(place, list) else place.get(at, "")
        if held != op["value"]:
            raise errors.Conflict(status=409, reason="Conflict", message=op["path"])
    elif op["op"] == "remove":
        del place[at]
    else:
        place[at] = op["value"]


class Feed:
    """A watch, as `Reflector` is one to whoever reads it: what it shows may be late, comes twice, or all at once.

    match: which objects it selects. silence: as of `Reflector`. slow: how late it is at most, in seconds.
    """

    def __init__(
        self,
        store: Store,
        process: Process,
        draw: Random,
        *,
        kind: str,
        type: Any,
        on_change: Callable[[str], None],
        match: Callable[[Raw], bool] = lambda raw: True,
        silence: float = 90.0,
    ) -> None:
        self.kind, self.slow, self.cut = kind, 0.05, False
        self.store: dict[str, Any] = {}
        self._truth, self._process, self._draw = store, process, draw
        self._type, self._on_change, self._match, self._silence = type, on_change, match, silence
        self._at, self._due = 0, False
        self._since = self._heard = asyncio.get_running_loop().time()
        self._stale_list()
        store.feeds.append(self)

    def healthy_since(self) -> float | None:
        return None if self._silent() else self._since

    def news(self) -> None:
        """Something was written; it will be seen."""
        if not self._due and not self._process.dead:
            self._due = True
            self._process.later(self._draw.random() * self.slow, self._pump)

    def broken(self, cut: bool) -> None:
        """The way to the API server is cut, or is there again: then it goes on, or lists anew."""
        now = asyncio.get_running_loop().time()
        if cut:
            self.cut, self._heard = True, now if not self.cut else self._heard
            return
        if self._silent():
            self._since = now
        self.cut = False
        if self._draw.random() < 0.5:
            self.relist()
        self.news()

    def relist(self) -> None:
        """Shows at once what is there, and nothing of what was between."""
        if self.cut or self._process.dead:
            return
        self._at = len(self._truth.log.get(self.kind, ()))
        there = {key: one.view(self._type) for key, one in self._truth.all(self.kind).items() if self._match(one.raw)}
        changed = [key for key in {**self.store, **there} if self.store.get(key) != there.get(key)]
        self.store.clear()
        self.store.update(there)
        self._draw.shuffle(changed)
        for key in changed:
            self._on_change(key)

    def _silent(self) -> bool:
        return self.cut and asyncio.get_running_loop().time() - self._heard > self._silence

    def _stale_list(self) -> None:
        """The first list may be older than what is there now."""
        log = self._truth.log.get(self.kind, [])
        self._at = len(log) - (self._draw.randint(0, 2) if self._draw.random() < 0.3 else 0)
        self._at = max(0, self._at)
        for key, version in log[: self._at]:
            self._show(key, version)
        for key in self.store:
            self._process.later(0.0, lambda key=key: self._on_change(key))
        if self._at < len(log):
            self._due = True
            self._process.later(self._draw.random() * self.slow, self._pump)

    def _pump(self) -> None:
        self._due = False
        if self.cut:
            return
        log = self._truth.log.get(self.kind, [])
        until = len(log) if self._draw.random() < 0.7 else self._draw.randint(self._at, len(log))
        while self._at < until:
            key, version = log[self._at]
            self._at += 1
            if self._show(key, version):
                self._on_change(key)
                if self._draw.random() < 0.05:
                    self._on_change(key)
        if self._at < len(log):
            self.news()

    def _show(self, key: str, version: Version | None) -> bool:
        if version is None or not self._match(version.raw):
            return self.store.pop(key, None) is not None
        self.store[key] = version.view(self._type)
        return True


class Trouble:
    """How often requests go wrong, and how slow they are; none of it in peace."""

    lost_before = 0.02
    lost_after = 0.03
    refused = 0.01
    late = 0.01
    slow = 0.03
    PEACE_SECONDS = 0.01

    def __init__(self) -> None:
        self.peace = False


class Client:
    """`Kube` for one process: requests take time, get lost with or without effect, or come into effect too late."""

    def __init__(self, store: Store, process: Process, draw: Random, trouble: Trouble) -> None:
        self.cut = False
        self._store, self._process, self._draw, self._trouble = store, process, draw, trouble

    async def get(self, path: str, type: Any, *, timeout: float = 10.0) -> Any:
        kind, key = _parse(path)
        return (await self._ask(lambda: self._store.get(kind, key), timeout)).view(type)

    async def list(self, path: str, type: Any, *, field_selector: str = "") -> Any:
        kind, _ = _parse(path)
        uid = field_selector.removeprefix("status.assignedPodUID=")

        def found() -> list[Any]:
            every = self._store.all(kind).values()
            return [one.view(type) for one in every if one.raw.get("status", {}).get("assignedPodUID", "") == uid]

        return await self._ask(found, 10.0), ""

    async def patch_json(self, path: str, ops: Any, type: Any, *, timeout: float = 10.0) -> Any:
        kind, key = _parse(path)
        return (await self._ask(lambda: self._store.patch(kind, key, list(ops)), timeout)).view(type)

    async def patch_merge(self, path: str, body: Any, type: Any, *, timeout: float = 10.0) -> Any:
        """Of a Lease, whose fields come whole."""
        kind, key = _parse(path)

        def renew() -> Version:
            held = self._store.get(kind, key).raw
            return self._store.put(kind, key, {**held, **body, "metadata": held["metadata"] | body["metadata"]})

        return (await self._ask(renew, timeout)).view(type)

    async def create(self, path: str, body: Any, type: Any, *, timeout: float = 10.0) -> Any:
        kind, _ = _parse(path)
        key = f"n/{body['metadata']['name']}"

        def make() -> Version:
            if key in self._store.all(kind):
                raise errors.AlreadyExists(status=409, reason="AlreadyExists", message=key)
            return self._store.put(kind, key, {**body, "metadata": {"namespace": "n", **body["metadata"]}})

        return (await self._ask(make, timeout)).view(type)

    async def apply(self, path: str, body: Any, type: Any, *, manager: str) -> Any:
        """Of the readiness gate, by which the kubelet decides whether the Pod is ready."""
        kind, key = _parse(path)

        def gate() -> Version:
            if self._store.get(kind, key).raw["metadata"]["uid"] != body["metadata"]["uid"]:
                raise errors.Conflict(status=409, reason="Conflict", message="uid")
            (condition,) = body["status"]["conditions"]
            ready = {"type": "Ready", "status": condition["status"]}
            self._store.change(kind, key, lambda raw: raw["status"].update(conditions=[condition, ready]))
            return self._store.get(kind, key)

        return (await self._ask(gate, 10.0)).view(type)

    async def delete(self, path: str, *, uid: str, resource_version: str) -> None:
        kind, key = _parse(path)

        def go() -> None:
            meta = self._store.get(kind, key).raw["metadata"]
            if (meta["uid"], meta["resourceVersion"]) != (uid, resource_version):
                raise errors.Conflict(status=409, reason="Conflict", message=key)
            self._store.delete(kind, key)

        await self._ask(go, 10.0)

    async def _ask(self, do: Callable[[], Any], timeout: float) -> Any:
        turn, draw, trouble = self._draw.random(), self._draw, self._trouble
        if trouble.peace:
            await asyncio.sleep(trouble.PEACE_SECONDS)
            return do()
        if self.cut or turn < trouble.lost_before:
            await asyncio.sleep(timeout)
            raise errors.Unreachable(status=0, message="timed out")
        turn -= trouble.lost_before
        try:
            await asyncio.sleep(draw.uniform(0.5, 8.0) if draw.random() < trouble.slow else draw.random() * 0.02)
        except asyncio.CancelledError:
            if self._process.dead and draw.random() < 0.5:  # sent before its process ended
                _quietly(do)
            raise
        if self.cut:
            await asyncio.sleep(timeout)
            raise errors.Unreachable(status=0, message="timed out")
        if turn < trouble.refused:
            raise errors.TooManyRequests(status=429, reason="TooManyRequests", retry_after=1.0)
        turn -= trouble.refused
        if turn < trouble.late:
            asyncio.get_running_loop().call_later(draw.uniform(0.0, 20.0), _quietly, do)
            await asyncio.sleep(timeout)
            raise errors.Unreachable(status=0, message="timed out")
        turn -= trouble.late
        result = do()
        if turn < trouble.lost_after:
            await asyncio.sleep(timeout if draw.random() < 0.3 else 0.0)
            raise errors.Unreachable(status=0, message="reset")
        await asyncio.sleep(draw.random() * 0.02)
        return result


def _quietly(do: Callable[[], Any]) -> None:
    """A request whose answer nobody hears."""
    try:
        do()
    except errors.ApiError:
        return


def _parse(path: str) -> tuple[str, str]:
    """Kind and key of an object's path, or of a collection."""
    parts = path.split("/namespaces/")[1].split("/")
    return parts[1], f"{parts[0]}/{parts[2]}" if len(parts) > 2 else ""
