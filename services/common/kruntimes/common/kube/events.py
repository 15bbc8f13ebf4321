"""Events, for people who read `kubectl describe`. They may be lost, and they never hold up or fail the work."""

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from kruntimes.common import clock
from kruntimes.common.api import names
from kruntimes.common.api.views import Meta, Object
from kruntimes.common.kube import errors, paths
from kruntimes.common.kube.transport import Kube

log = logging.getLogger(__name__)

AGGREGATE_SECONDS = 600.0
"""The same event on the same object within this time is counted up, as other components do it."""
REPEAT_SECONDS = 10.0
"""A repetition is written no more often than this; what comes in between is counted in the next write."""
REMEMBERED = 1024
"""Series that are remembered; older ones start anew."""
WRITE_SECONDS = 3.0
MESSAGE_CHARS = 1024
"""The API's bound on an Event's message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRef:
    """What an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


def run_ref(meta: Meta) -> ObjectRef:
    """A reference to the Run with that metadata."""
    return _ref(names.API_VERSION, "Run", meta)


def runtime_ref(meta: Meta) -> ObjectRef:
    """A reference to the Runtime with that metadata."""
    return _ref(names.API_VERSION, "Runtime", meta)


def pod_ref(meta: Meta) -> ObjectRef:
    """A reference to the Pod with that metadata."""
    return _ref("v1", "Pod", meta)


def _ref(api_version: str, kind: str, meta: Meta) -> ObjectRef:
    return ObjectRef(api_version=api_version, kind=kind, namespace=meta.namespace, name=meta.name, uid=meta.uid)


@dataclass(slots=True)
class _Series:
    """One event that repeats. count: how often it happened; name: of the Event object, empty before it exists."""

    name: str
    count: int
    first: float
    written: float


class Recorder:
    """Writes Events of one component; *component* is what `kubectl describe` shows as the source."""

    def __init__(self, kube: Kube, component: str) -> None:
        self._kube = kube
        self._component = component
        self._series: OrderedDict[tuple[str, str, str, str], _Series] = OrderedDict()

    async def event(self, ref: ObjectRef, *, type: str, reason: str, message: str) -> None:
        """Records one event. type: Normal or Warning. reason: one CamelCase word. Never raises an ApiError."""
        key, now = (ref.uid, type, reason, message), clock.monotonic()
        series = self._series.get(key)
        if series is None or now - series.first > AGGREGATE_SECONDS:
            series = self._series[key] = _Series("", 0, now, float("-inf"))
        self._series.move_to_end(key)
        while len(self._series) > REMEMBERED:
            self._series.popitem(last=False)
        series.count += 1
        if now - series.written < REPEAT_SECONDS:
            return
        series.written = now
        try:
            await self._write(ref, series, type=type, reason=reason, message=message[:MESSAGE_CHARS])
        except errors.ApiError as error:
            log.debug("event not recorded", extra={"reason": reason, "error": str(error)})

    async def _write(self, ref: ObjectRef, series: _Series, *, type: str, reason: str, message: str) -> None:
        stamp = clock.rfc3339(clock.utcnow())
        namespace = ref.namespace or "default"
        if series.name:
            body: dict[str, Any] = {"count": series.count, "lastTimestamp": stamp}
            try:
                await self._kube.patch_merge(paths.events(namespace, series.name), body, Object, timeout=WRITE_SECONDS)
                return
            except errors.Missing:
                series.name = ""
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{ref.name[:200]}.", "namespace": namespace},
            "involvedObject": {
                "apiVersion": ref.api_version,
                "kind": ref.kind,
                "namespace": ref.namespace,
                "name": ref.name,
                "uid": ref.uid,
            },
            "type": type,
            "reason": reason,
            "message": message,
            "count": series.count,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
        }
        made = await self._kube.create(paths.events(namespace), body, Object, timeout=WRITE_SECONDS)
        series.name = made.metadata.name
