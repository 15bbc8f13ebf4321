"""What a world means to Envoy: case by case, and that both ways to compute it agree byte by byte."""

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.router_worlds import OPTIONS, UID, a_pod, a_run, a_runtime, uid_of
from tests.xds_messages import Cluster, RouteConfiguration, ScopedRouteConfiguration

import kruntimes.router.compile as compile_module
from kruntimes.common.api.views import Pod, RouteRun, Runtime
from kruntimes.router.compile import Routes, Target, Unrouted, capacity_of, compile, target_of
from kruntimes.router.encode import CLUSTERS, ROUTES, SCOPES
from kruntimes.router.snapshot import Key, Snapshot

PATH = f"/v1/namespaces/demo/runtimes/python/functions/{UID}:invoke"


@pytest.mark.parametrize(
    ("capacity", "cluster"),
    [
        pytest.param("1", "runs-8", id="the-smallest"),
        pytest.param("8", "runs-8", id="small"),
        pytest.param("9", "runs-32", id="no-longer-small"),
        pytest.param("32", "runs-32", id="middling"),
        pytest.param("33", "runs", id="large"),
        pytest.param("10k", "runs", id="with-a-factor"),
        pytest.param(None, "runs", id="not-said"),
        pytest.param("many", "runs", id="not-a-number"),
    ],
)
def test_the_cluster_is_as_large_as_the_pod(capacity: str | None, cluster: str) -> None:
    target = target_of(a_run(), a_pod(capacity=capacity))
    assert isinstance(target, Target)
    assert target.cluster == cluster


@pytest.mark.parametrize(
    ("run", "pod", "outcome"),
    [
        pytest.param(
            a_run(),
            a_pod(),
            Target(PATH, "runs", "10.1.2.3:9443", "pod-1.runtimed.kruntimes.internal", f"{UID}/1/pod-1"),
            id="ready-on-a-known-pod-is-routed",
        ),
        pytest.param(
            a_run(attempt=3),
            a_pod(ip="fd00:0::0:2"),
            Target(PATH, "runs", "[fd00::2]:9443", "pod-1.runtimed.kruntimes.internal", f"{UID}/3/pod-1"),
            id="an-ipv6-address-is-put-in-brackets",
        ),
        pytest.param(
            a_run(),
            a_pod(ready=False),
            Target(PATH, "runs", "10.1.2.3:9443", "pod-1.runtimed.kruntimes.internal", f"{UID}/1/pod-1"),
            id="an-unready-pod-alone-proves-nothing",
        ),
        pytest.param(a_run(phase="Running"), a_pod(), Unrouted.NOT_READY, id="another-phase"),
        pytest.param(a_run(ready=False), a_pod(), Unrouted.NOT_READY, id="condition-false"),
        pytest.param(a_run(deleting=True), a_pod(), Unrouted.NOT_READY, id="a-deleting-run"),
        pytest.param(a_run(attempt=0), a_pod(), Unrouted.NOT_READY, id="never-claimed"),
        pytest.param(a_run(pod=""), a_pod(uid=""), Unrouted.NOT_READY, id="not-assigned"),
        pytest.param(a_run(), None, Unrouted.POD_UNKNOWN, id="the-pod-is-not-known"),
        pytest.param(a_run(), a_pod(uid="pod-2"), Unrouted.POD_UNKNOWN, id="another-pod-of-the-same-name"),
        pytest.param(a_run(), a_pod(namespace="evil"), Unrouted.POD_FOREIGN, id="a-pod-of-another-namespace"),
        pytest.param(a_run(), a_pod(runtime="bash"), Unrouted.POD_FOREIGN, id="a-pod-of-another-runtime"),
        pytest.param(a_run(), a_pod(deleting=True), Unrouted.POD_GONE, id="a-deleting-pod"),
        pytest.param(a_run(), a_pod(phase="Failed"), Unrouted.POD_GONE, id="a-failed-pod-may-have-lost-its-address"),
        pytest.param(a_run(), a_pod(ip=""), Unrouted.POD_UNADDRESSED, id="no-address-yet"),
        pytest.param(a_run(), a_pod(ip="10.1.2.3:80\r\nx: y"), Unrouted.POD_UNADDRESSED, id="not-an-address"),
        pytest.param(a_run(), a_pod(ip="fe80::1%eth0"), Unrouted.POD_UNADDRESSED, id="an-address-with-a-zone"),
        pytest.param(a_run(), a_pod(ip="0.0.0.0"), Unrouted.POD_UNADDRESSED, id="the-unspecified-address"),
        pytest.param(a_run(uid="x"), a_pod(), Unrouted.MALFORMED, id="a-uid-that-no-path-can-carry"),
        pytest.param(
            a_run(runtime="a/b"), a_pod(runtime="a/b"), Unrouted.MALFORMED, id="a-runtime-that-no-path-can-carry"
        ),
        pytest.param(a_run(pod="a.b"), a_pod(uid="a.b"), Unrouted.MALFORMED, id="a-pod-uid-that-is-no-label"),
    ],
)
def test_target_of(run: RouteRun, pod: Pod | None, outcome: Target | Unrouted) -> None:
    assert target_of(run, pod) == outcome


@pytest.mark.parametrize(
    ("runs", "capacity"),
    [
        pytest.param("3", 3, id="text"),
        pytest.param(4, 4, id="number"),
        pytest.param("0", 2, id="zero"),
        pytest.param("many", 2, id="not-a-number"),
        pytest.param("1_0", 2, id="python-only"),
    ],
)
def test_capacity_of(runs: str | int, capacity: int) -> None:
    assert capacity_of(a_runtime(runs=runs)) == capacity


def tree(snapshot: Snapshot, shard: str) -> list[str]:
    """The paths in a shard, in order."""
    held = snapshot.get(ROUTES, f"runs-{shard}")
    assert held is not None
    (host,) = RouteConfiguration.parse(held.body).virtual_hosts
    if host.matcher is None:
        return []
    assert host.matcher.matcher_tree is not None
    assert host.matcher.matcher_tree.exact_match_map is not None
    return list(host.matcher.matcher_tree.exact_match_map.map)


def addresses(snapshot: Snapshot, name: str) -> list[str]:
    held = snapshot.get(CLUSTERS, name)
    assert held is not None
    assignment = Cluster.parse(held.body).load_assignment
    assert assignment is not None
    return [
        lb.endpoint.address.socket_address.address
        for group in assignment.endpoints
        for lb in group.lb_endpoints
        if lb.endpoint and lb.endpoint.address and lb.endpoint.address.socket_address
    ]


def test_a_run_lies_in_the_shard_of_its_uid() -> None:
    snapshot = compile([a_run()], [], [a_pod()], OPTIONS)
    assert tree(snapshot, "0a1") == [PATH]
    assert tree(snapshot, "0a2") == []


def test_an_empty_world_has_every_scope_and_each_has_its_configuration() -> None:
    snapshot = compile([], [], [], OPTIONS)
    scopes = snapshot.of_type(SCOPES)
    assert len(scopes) == 4096 + 1
    for name in ("000", "7ff", "fff", "other"):
        read = ScopedRouteConfiguration.parse(scopes[name].body)
        assert read.route_configuration_name in snapshot.of_type(ROUTES)
    assert len(snapshot.of_type(ROUTES)) == 4096 + 1
    assert snapshot.of_type(CLUSTERS) == {}


def test_a_runtime_has_a_cluster_of_its_ready_pods_only() -> None:
    pods = [
        a_pod(uid="1", name="1", ip="10.0.0.9"),
        a_pod(uid="2", name="2", ip="10.0.0.10"),
        a_pod(uid="3", name="3", ip="10.0.0.3", ready=False),
        a_pod(uid="4", name="4", ip="10.0.0.4", deleting=True),
        a_pod(uid="5", name="5", ip="10.0.0.5", runtime="bash"),
        a_pod(uid="6", name="6", ip="10.0.0.6", namespace="other"),
        a_pod(uid="7", name="7", ip="nonsense"),
        a_pod(uid="8", name="8", ip="10.0.0.9"),
    ]
    snapshot = compile([], [a_runtime(), a_runtime(name="empty")], pods, OPTIONS)
    assert addresses(snapshot, "demo/python") == ["10.0.0.10", "10.0.0.9"]
    assert addresses(snapshot, "demo/empty") == []
    assert len(snapshot.of_type(CLUSTERS)) == 2


def test_a_runtime_that_no_path_can_carry_has_no_cluster() -> None:
    assert compile([], [a_runtime(name="x" * 64)], [], OPTIONS).of_type(CLUSTERS) == {}


RUNS = st.builds(
    a_run,
    uid=st.sampled_from([uid_of(index, shard=shard) for index in range(3) for shard in ("0a1", "fff")]),
    namespace=st.sampled_from(["demo", "blue"]),
    runtime=st.sampled_from(["python", "bash"]),
    pod=st.sampled_from(["pod-1", "pod-2", "pod-3"]),
    attempt=st.integers(1, 2),
    ready=st.sampled_from([True, True, True, False]),
)
PODS = st.builds(
    a_pod,
    uid=st.sampled_from(["pod-1", "pod-2", "pod-3"]),
    namespace=st.sampled_from(["demo", "blue"]),
    runtime=st.sampled_from(["python", "bash"]),
    ip=st.sampled_from(["10.0.0.1", "10.0.0.2", "fd00::1", ""]),
    ready=st.booleans(),
    deleting=st.sampled_from([False, False, True]),
)
RUNTIMES = st.builds(
    a_runtime,
    name=st.sampled_from(["python", "bash"]),
    namespace=st.sampled_from(["demo", "blue"]),
    runs=st.sampled_from(["1", "2"]),
)


def by_uid(objects: Iterable[RouteRun]) -> list[RouteRun]:
    return list({each.metadata.uid: each for each in objects}.values())


@given(
    runs=st.lists(RUNS, max_size=6).map(by_uid),
    runtimes=st.lists(RUNTIMES, max_size=4, unique_by=lambda each: each.metadata.key),
    pods=st.lists(PODS, max_size=3, unique_by=lambda each: each.metadata.uid),
    data=st.data(),
)
@settings(max_examples=25, deadline=None)
def test_the_order_of_a_world_does_not_matter(
    runs: list[RouteRun], runtimes: list[Runtime], pods: list[Pod], data: st.DataObject
) -> None:
    other = compile(
        data.draw(st.permutations(runs)),
        data.draw(st.permutations(runtimes)),
        data.draw(st.permutations(pods)),
        OPTIONS,
    )
    assert compile(runs, runtimes, pods, OPTIONS) == other


STEPS = st.one_of(
    st.tuples(st.just("runs"), st.sampled_from(["r1", "r2", "r3", "r4"]), RUNS | st.none()),
    st.tuples(st.just("pods"), st.sampled_from(["p1", "p2", "p3"]), PODS | st.none()),
    st.tuples(st.just("runtimes"), st.none(), RUNTIMES),
    st.tuples(st.just("no runtime"), st.none(), RUNTIMES),
)


@given(batches=st.lists(st.lists(STEPS, max_size=4), max_size=8))
@settings(max_examples=60, deadline=None)
def test_any_sequence_of_changes_ends_with_what_compile_says(
    batches: list[list[tuple[str, str | None, object]]],
) -> None:
    routes = Routes(OPTIONS)
    runs: dict[str, RouteRun] = {}
    pods: dict[str, Pod] = {}
    runtimes: dict[str, Runtime] = {}
    for batch in batches:
        run_changes: dict[str, RouteRun | None] = {}
        pod_changes: dict[str, Pod | None] = {}
        runtime_changes: dict[str, Runtime | None] = {}
        for kind, name, value in batch:
            if kind == "runs":
                assert name is not None
                run = value if isinstance(value, RouteRun) else None
                taken = run is not None and any(
                    key != name and each is not None and each.metadata.uid == run.metadata.uid
                    for key, each in {**runs, **run_changes}.items()
                )
                run_changes[name] = None if taken else run
            elif kind == "pods":
                assert name is not None
                pod = value if isinstance(value, Pod) else None
                held = pod is not None and any(
                    key != name and other is not None and other.metadata.uid == pod.metadata.uid
                    for source in (pods, pod_changes)
                    for key, other in source.items()
                )
                pod_changes[name] = None if held else pod
            else:
                assert isinstance(value, Runtime)
                runtime_changes[value.metadata.key] = value if kind == "runtimes" else None
        before = routes.snapshot
        changed = routes.apply(runs=run_changes, runtimes=runtime_changes, pods=pod_changes)
        for store, changes in ((runs, run_changes), (pods, pod_changes), (runtimes, runtime_changes)):
            for key, each in changes.items():
                if each is None:
                    store.pop(key, None)  # type: ignore[attr-defined]
                else:
                    store[key] = each  # type: ignore[index]
        assert changed == differing(before, routes.snapshot)
        assert sum(routes.counts.values()) == len(runs)
    assert routes.snapshot == compile(runs.values(), runtimes.values(), pods.values(), OPTIONS)


def differing(before: Snapshot, after: Snapshot) -> set[Key]:
    return {
        Key(type_url, name)
        for type_url in before.types.keys() | after.types.keys()
        if before.of_type(type_url) is not after.of_type(type_url)
        for name, _ in before.of_type(type_url).items() ^ after.of_type(type_url).items()
    }


def test_a_changed_run_touches_its_shard_and_nothing_else() -> None:
    routes = Routes(OPTIONS)
    many = {f"demo/r{index}": a_run(uid=uid_of(index, shard=f"{index:03x}"), name=f"r{index}") for index in range(200)}
    routes.apply(runs=many, pods={"demo/p": a_pod()}, runtimes={"demo/python": a_runtime()})
    before = routes.snapshot
    run = a_run(uid=uid_of(7, shard="007"), name="r7", attempt=2)
    assert routes.apply(runs={"demo/r7": run}) == {Key(ROUTES, "runs-007")}
    assert routes.snapshot.of_type(SCOPES) is before.of_type(SCOPES)
    assert routes.snapshot.of_type(CLUSTERS) is before.of_type(CLUSTERS)
    assert routes.apply(runs={"demo/r7": run}) == frozenset()


def test_the_work_for_a_changed_run_is_its_entry_and_its_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = Routes(OPTIONS)
    many = {
        f"demo/r{index}": a_run(uid=uid_of(index, shard=f"{index % 16:03x}"), name=f"r{index}") for index in range(300)
    }
    routes.apply(runs=many, pods={"demo/p": a_pod()})
    done: list[str] = []
    for name in ("entry", "shard"):
        monkeypatch.setattr(compile_module, name, noting(getattr(compile_module, name), name, done))
    routes.apply(runs={"demo/r7": a_run(uid=uid_of(7, shard="007"), name="r7", attempt=2)})
    assert done == ["entry", "shard"]


def noting(function: Callable[..., bytes], name: str, done: list[str]) -> Callable[..., bytes]:
    def noted(**fields: object) -> bytes:
        done.append(name)
        return function(**fields)

    return noted


def test_a_pod_that_goes_takes_the_routes_to_it_along() -> None:
    routes = Routes(OPTIONS)
    routes.apply(
        runs={"demo/a": a_run(), "demo/b": a_run(uid=uid_of(2, shard="fff"), name="b", pod="pod-2")},
        pods={"demo/p": a_pod(), "demo/q": a_pod(uid="pod-2", name="q", ip="10.0.0.2")},
        runtimes={"demo/python": a_runtime()},
    )
    assert routes.counts["routed"] == 2
    changed = routes.apply(pods={"demo/p": a_pod(deleting=True)})
    assert changed == {Key(ROUTES, "runs-0a1"), Key(CLUSTERS, "demo/python")}
    assert tree(routes.snapshot, "0a1") == []
    assert routes.counts == {**dict.fromkeys(Unrouted, 0), "routed": 1, Unrouted.POD_GONE: 1}


def test_a_run_may_be_known_before_its_pod() -> None:
    routes = Routes(OPTIONS)
    assert routes.apply(runs={"demo/a": a_run()}) == frozenset()
    assert routes.apply(pods={"demo/p": a_pod()}) == {Key(ROUTES, "runs-0a1")}


def test_a_new_pod_of_the_same_name_is_another_pod() -> None:
    routes = Routes(OPTIONS)
    routes.apply(runs={"demo/a": a_run()}, pods={"demo/p": a_pod()})
    assert routes.apply(pods={"demo/p": a_pod(uid="pod-9")}) == {Key(ROUTES, "runs-0a1")}
    assert routes.counts[Unrouted.POD_UNKNOWN] == 1


def test_a_new_run_of_the_same_name_is_another_run() -> None:
    routes = Routes(OPTIONS)
    routes.apply(runs={"demo/a": a_run()}, pods={"demo/p": a_pod()})
    fresh = uid_of(5, shard="abc")
    assert routes.apply(runs={"demo/a": a_run(uid=fresh)}) == {Key(ROUTES, "runs-0a1"), Key(ROUTES, "runs-abc")}
    assert tree(routes.snapshot, "abc") == [PATH.replace(UID, fresh)]
