"""Events of the loops: what was done about an object, told once and then counted."""

import hashlib

from kruntimes.local.apiserver.api import Api
from kruntimes.local.apiserver.loops.resource import resource
from kruntimes.local.apiserver.parts import Json
from kruntimes.local.apiserver.status import StatusError

EVENTS = ("", "events")
_FOR_CLUSTER_SCOPED = "default"


def note(api: Api, obj: Json, *, kind: str, reason: str, message: str, component: str) -> None:
    """Writes a core/v1 Event about *obj*, or counts the one that says the same. A refusal is of no consequence."""
    meta, ctx = obj["metadata"], api.context()
    said = "\0".join((meta["uid"], kind, reason, message))
    name = f"{meta['name'][:230]}.{hashlib.sha256(said.encode()).hexdigest()[:16]}"
    namespace = meta.get("namespace") or _FOR_CLUSTER_SCOPED
    events = resource(api, EVENTS)

    def again(event: Json) -> Json:
        event["count"] = event.get("count", 1) + 1
        event["lastTimestamp"] = ctx.timestamp
        return event

    try:
        if api.store.peek(EVENTS, namespace, name) is not None:
            api.change(events, namespace, name, again)
            return
        about = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": meta["name"], "uid": meta["uid"]}
        about |= {key: meta[key] for key in ("namespace", "resourceVersion") if meta.get(key)}
        event = {
            "metadata": {"name": name}, "involvedObject": about, "type": kind, "reason": reason, "message": message,
            "source": {"component": component}, "reportingComponent": component, "count": 1,
            "firstTimestamp": ctx.timestamp, "lastTimestamp": ctx.timestamp,
        }  # fmt: skip
        api.create(events, namespace, event)
    except StatusError:
        return
