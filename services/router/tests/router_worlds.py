"""Runs, Runtimes and Pods for the tests of the router."""

from kruntimes.common.api.views import (
    Capacity,
    Condition,
    Meta,
    Pod,
    PodStatus,
    RouteRun,
    RouteSpec,
    RouteStatus,
    Runtime,
    RuntimeSpec,
)
from kruntimes.router.cluster import Secrets
from kruntimes.router.compile import Options

OPTIONS = Options(max_timeout=900, secrets=Secrets("/gw/client.yaml", "client", "/gw/ca.yaml", "ca"))
UID = "0a1b2c3d-0000-4000-8000-000000000001"
READY = (Condition(type="Ready", status="True"),)


def uid_of(index: int, *, shard: str = "0a1") -> str:
    """The UID of Run number *index*, in that shard."""
    return f"{shard}00000-0000-4000-8000-{index:012x}"


def a_run(
    *,
    uid: str = UID,
    name: str = "f",
    namespace: str = "demo",
    runtime: str = "python",
    pod: str = "pod-1",
    attempt: int = 1,
    phase: str = "Ready",
    ready: bool = True,
    deleting: bool = False,
) -> RouteRun:
    return RouteRun(
        metadata=Meta(
            name=name, namespace=namespace, uid=uid, deletion_timestamp="2026-01-01T00:00:00Z" if deleting else None
        ),
        spec=RouteSpec(runtime=runtime),
        status=RouteStatus(
            phase=phase,
            assigned_pod="p",
            assigned_pod_uid=pod,
            attempt=attempt,
            conditions=(Condition(type="Ready", status=str(ready)),),
        ),
    )


def a_pod(
    *,
    uid: str = "pod-1",
    name: str = "p",
    namespace: str = "demo",
    runtime: str = "python",
    ip: str = "10.1.2.3",
    ready: bool = True,
    phase: str = "Running",
    deleting: bool = False,
    capacity: str | None = None,
) -> Pod:
    return Pod(
        metadata=Meta(
            name=name,
            namespace=namespace,
            uid=uid,
            labels={"runtime": runtime},
            annotations={} if capacity is None else {"kruntimes.io/capacity.runs": capacity},
            deletion_timestamp="2026-01-01T00:00:00Z" if deleting else None,
        ),
        status=PodStatus(phase=phase, pod_ip=ip, conditions=READY if ready else ()),
    )


def a_runtime(*, name: str = "python", namespace: str = "demo", runs: str | int = "2") -> Runtime:
    return Runtime(
        metadata=Meta(name=name, namespace=namespace), spec=RuntimeSpec(capacity=Capacity(resources={"runs": runs}))
    )
