"""What the router publishes, in a real Envoy, with Pods that answer over mTLS."""

import asyncio
from pathlib import Path

import pytest
from tests.router_gateway import Pki, Router, eventually, gateway, secrets_in, upstream
from tests.router_worlds import UID, a_pod, a_run, a_runtime, uid_of

from kruntimes.router.compile import Options
from kruntimes.router.encode import ROUTES
from kruntimes.router.snapshot import Key

PATH = f"/v1/namespaces/demo/runtimes/python/functions/{UID}:invoke"
KINDS = ("Cluster", "ScopedRouteConfiguration", "RouteConfiguration")


@pytest.fixture(scope="module")
def pki() -> Pki:
    return Pki()


@pytest.fixture
def router(pki: Pki, tmp_path: Path) -> Router:
    return Router(pki, Options(max_timeout=60, secrets=secrets_in(tmp_path)))


def path_of(uid: str, *, namespace: str = "demo", runtime: str = "python") -> str:
    return f"/v1/namespaces/{namespace}/runtimes/{runtime}/functions/{uid}:invoke"


async def test_a_ready_run_is_routed_to_its_pod_and_withdrawn(pki: Pki, tmp_path: Path, router: Router) -> None:
    async with upstream(pki, "pod-1") as one, upstream(pki, "pod-2") as two, router.serving():
        other = uid_of(2, shard="fff")
        router.apply(
            runs={"demo/a": a_run(), "demo/b": a_run(uid=other, name="b", pod="pod-2", attempt=3)},
            pods={
                "demo/p": a_pod(ip=one.ip, ready=False),
                "demo/q": a_pod(uid="pod-2", name="q", ip=two.ip, ready=False),
            },
            runtimes={"demo/python": a_runtime()},
        )
        async with gateway(pki, tmp_path, router) as envoy:
            answer = await envoy.until(PATH, 200, pod="pod-1")
            assert answer == {"pod": "pod-1", "path": PATH, "epoch": f"{UID}/1/pod-1", "caller": "gateway"}
            assert await envoy.until(path_of(other), 200, pod="pod-2", epoch=f"{other}/3/pod-2")
            spoofed = {"x-kr-dst": f"{two.ip}:9443", "x-kr-sni": "pod-2.runtimed.kruntimes.internal", "x-kr-epoch": "x"}
            assert (await envoy.post(PATH, **spoofed))[1] == answer

            status, _ = await envoy.post(path_of(UID, namespace="evil"))
            assert status == 503, "another namespace's path leads to that namespace's cluster, which does not exist"
            status, _ = await envoy.post(path_of(UID, runtime="bash"))
            assert status == 503

            router.apply(runs={"demo/a": None})
            await envoy.until(PATH, 503)
            assert await envoy.until(path_of(other), 200, pod="pod-2")
            router.apply(runs={"demo/a": a_run(pod="pod-2", attempt=2)})
            assert await envoy.until(PATH, 200, pod="pod-2", epoch=f"{UID}/2/pod-2")
            await eventually(
                lambda: router.value("push_seconds_count", type="RouteConfiguration") >= 2, "pushes counted"
            )
            assert router.value("replies_total", type="RouteConfiguration", reply="nack") == 0


async def test_an_address_that_answers_as_another_pod_is_refused(pki: Pki, tmp_path: Path, router: Router) -> None:
    async with upstream(pki, "pod-new") as reused, router.serving():
        mine, other = a_pod(ip=reused.ip), a_pod(uid="pod-new", name="q", ip=reused.ip)
        same = uid_of(2, shard="fff")
        router.apply(
            runs={"demo/a": a_run(), "demo/b": a_run(uid=same, name="b", pod="pod-new")},
            pods={"demo/p": mine, "demo/q": other},
        )
        async with gateway(pki, tmp_path, router) as envoy:
            await envoy.until(path_of(same), 200, pod="pod-new")
            status, _ = await envoy.post(PATH)
            assert status == 503, "the connection to the same address must not be shared between identities"
            assert (await envoy.post(path_of(same)))[0] == 200


async def test_what_has_no_route_of_its_own_falls_back_to_a_ready_pod(pki: Pki, tmp_path: Path, router: Router) -> None:
    async with upstream(pki, "pod-1") as one, upstream(pki, "pod-2") as two, router.serving():
        router.apply(pods={"demo/p": a_pod(ip=one.ip)}, runtimes={"demo/python": a_runtime()})
        async with gateway(pki, tmp_path, router) as envoy:
            assert await envoy.until(PATH, 200, pod="pod-1", epoch=None)
            alias = PATH.replace("/functions/", "/runs/")
            assert await envoy.until(alias, 200, path=alias)
            cancel = PATH.replace(":invoke", "/invocations/id-1:cancel")
            assert await envoy.until(cancel, 200, path=cancel)
            assert (await envoy.post("/v1/namespaces/demo/nonsense"))[0] == 400
            assert (await envoy.post("/favicon.ico"))[0] == 404

            holding = asyncio.ensure_future(envoy.post(PATH, hold="1"))
            one.entered.clear()
            await one.entered.wait()
            router.apply(
                pods={"demo/p": a_pod(ip=one.ip, ready=False), "demo/q": a_pod(uid="pod-2", name="q", ip=two.ip)}
            )
            assert await envoy.until(PATH, 200, pod="pod-2")
            one.held.set()
            assert (await holding)[0] == 200, "a call under way survives the change of its cluster"

            router.apply(runtimes={"demo/python": None})
            await envoy.until(PATH, 503)


async def test_the_fallback_refuses_a_pod_of_another_runtime(pki: Pki, tmp_path: Path, router: Router) -> None:
    async with upstream(pki, "pod-1") as python, upstream(pki, "pod-2", runtime="bash") as bash, router.serving():
        router.apply(pods={"demo/p": a_pod(ip=python.ip)}, runtimes={"demo/python": a_runtime()})
        async with gateway(pki, tmp_path, router) as envoy:
            await envoy.until(PATH, 200, pod="pod-1")
            router.apply(pods={"demo/p": a_pod(ip=bash.ip)})
            await envoy.until(PATH, 503)
            assert not bash.entered.is_set()


async def test_a_restarted_router_with_the_same_world_sends_nothing_again(
    pki: Pki, tmp_path: Path, router: Router
) -> None:
    async with upstream(pki, "pod-1") as one, gateway(pki, tmp_path, router) as envoy:
        world = {"runs": {"demo/a": a_run()}, "pods": {"demo/p": a_pod(ip=one.ip)}}
        async with router.serving():
            router.apply(**world, runtimes={"demo/python": a_runtime()})
            await envoy.until(PATH, 200, pod="pod-1")
            await eventually(lambda: acknowledged(router) >= 3, "all three types are acknowledged")
        first = sent(router)
        assert await envoy.until(PATH, 200, pod="pod-1"), "routes stay while there is no router"

        before = acknowledged(router)
        async with router.serving():
            await eventually(lambda: acknowledged(router) >= before + 3, "the stream is resumed")
            resumed = sent(router) - first
            assert resumed < 1_000, f"{resumed} bytes for a world that Envoy knows"
            router.apply(runs={"demo/a": a_run(attempt=2)})
            assert await envoy.until(PATH, 200, epoch=f"{UID}/2/pod-1")


async def test_a_refused_resource_keeps_what_was_and_stops_nothing_else(
    pki: Pki, tmp_path: Path, router: Router
) -> None:
    async with upstream(pki, "pod-1") as one, router.serving():
        router.apply(runs={"demo/a": a_run()}, pods={"demo/p": a_pod(ip=one.ip)}, runtimes={"demo/python": a_runtime()})
        async with gateway(pki, tmp_path, router) as envoy:
            await envoy.until(PATH, 200, pod="pod-1")
            fresh = uid_of(2, shard="fff")
            changed = router.routes.apply(runs={"demo/a": a_run(attempt=2), "demo/b": a_run(uid=fresh, name="b")})
            bad = Key(ROUTES, "runs-0a1")
            assert bad in changed
            broken = router.routes.snapshot.with_changes({bad: b"\x0a\x08runs-0a1\x12\x00"})
            router.publisher.publish(broken, changed)
            assert await envoy.until(path_of(fresh), 200, epoch=f"{fresh}/1/pod-1"), "the good shard takes effect"
            await eventually(
                lambda: router.value("replies_total", type="RouteConfiguration", reply="nack") >= 2,
                "the bad shard is refused, with the other and alone",
            )
            assert await envoy.until(PATH, 200, epoch=f"{UID}/1/pod-1"), "the bad shard is as it was"
            router.publisher.publish(router.routes.snapshot, {bad})
            assert await envoy.until(PATH, 200, epoch=f"{UID}/2/pod-1")


async def test_nothing_is_served_before_there_is_a_world(pki: Pki, tmp_path: Path, router: Router) -> None:
    async with (
        upstream(pki, "pod-1") as one,
        router.serving(published=False),
        gateway(pki, tmp_path, router) as envoy,
    ):
        await eventually(lambda: router.value("streams") == 1, "Envoy is connected")
        assert router.value("sent_bytes_total", type="Cluster") == 0
        router.apply(runs={"demo/a": a_run()}, pods={"demo/p": a_pod(ip=one.ip)})
        await envoy.until(PATH, 200, pod="pod-1")


async def test_several_envoys_are_served_alike(pki: Pki, tmp_path: Path, router: Router) -> None:
    folders = [tmp_path, tmp_path / "second"]
    folders[1].mkdir()
    async with (
        upstream(pki, "pod-1") as one,
        router.serving(),
        gateway(pki, folders[0], router) as first,
        gateway(pki, folders[1], router) as second,
    ):
        router.apply(runs={"demo/a": a_run()}, pods={"demo/p": a_pod(ip=one.ip)})
        for envoy in (first, second):
            await envoy.until(PATH, 200, pod="pod-1")
        assert router.value("streams") == 2
    await eventually(lambda: router.value("streams") == 0, "streams that ended are forgotten")


def sent(router: Router) -> float:
    return sum(router.value("sent_bytes_total", type=kind) for kind in KINDS)


def acknowledged(router: Router) -> float:
    return sum(router.value("replies_total", type=kind, reply="ack") for kind in KINDS)
