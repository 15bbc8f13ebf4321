"""Election and heartbeat in virtual time, against Leases whose server hangs, fails and loses answers."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.kube.kube_faults import until

from kruntimes.common import clock
from kruntimes.common.api.views import Lease, Object
from kruntimes.common.kube import errors, paths
from kruntimes.common.kube.election import Timing
from kruntimes.common.kube.lease import Elector, Heartbeat
from kruntimes.common.kube.transport import Kube

LEASE = paths.leases("ns", "lock")


@pytest.fixture
def virtual_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "monotonic", lambda: asyncio.get_running_loop().time())


class Leases:
    """The Leases of one API server, which checks versions; every client has a fault switch of its own."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 0

    def write(self, path: str, body: dict[str, Any]) -> Lease:
        self.version += 1
        known = self.objects.get(path, {"metadata": {}, "spec": {}})
        wanted = body["metadata"].get("resourceVersion")
        if wanted is not None and wanted != known["metadata"]["resourceVersion"]:
            raise errors.Conflict(status=409)
        spec = known["spec"] | body["spec"]
        metadata = known["metadata"] | body["metadata"] | {"resourceVersion": str(self.version)}
        self.objects[path] = {"metadata": metadata, "spec": spec}
        return self.read(path)

    def read(self, path: str) -> Lease:
        if path not in self.objects:
            raise errors.Missing(status=404)
        return msgspec.convert(self.objects[path], Lease)


class Client:
    """What Elector and Heartbeat use of `Kube`; fault: '', hang, refuse, or lose (done, but the answer is lost)."""

    def __init__(self, leases: Leases) -> None:
        self.leases = leases
        self.fault = ""
        self.requests = 0

    async def get(self, path: str, type: object, *, timeout: float) -> Lease:
        return await self._answer(lambda: self.leases.read(path), timeout)

    async def create(self, path: str, obj: dict[str, Any], type: object, *, timeout: float) -> Lease:
        target = f"{path}/{obj['metadata']['name']}"

        def make() -> Lease:
            if target in self.leases.objects:
                raise errors.AlreadyExists(status=409)
            return self.leases.write(target, obj)

        return await self._answer(make, timeout)

    async def patch_merge(self, path: str, obj: dict[str, Any], type: object, *, timeout: float) -> Lease:
        def patch() -> Lease:
            self.leases.read(path)
            return self.leases.write(path, obj)

        return await self._answer(patch, timeout)

    async def _answer(self, act: Callable[[], Lease], timeout: float) -> Lease:
        self.requests += 1
        await asyncio.sleep(0.01)
        if self.fault == "refuse":
            raise errors.Unreachable(status=0)
        if self.fault == "hang":
            await asyncio.sleep(timeout)
            raise errors.Unreachable(status=0)
        answer = act()
        if self.fault == "lose":
            await asyncio.sleep(timeout)
            raise errors.Unreachable(status=0)
        await asyncio.sleep(0.01)
        return answer


class Leaders:
    """Who leads, and whether there were ever two."""

    def __init__(self) -> None:
        self.now: set[str] = set()
        self.terms: list[str] = []

    def work_of(self, name: str, *, clean_up: float = 0.0) -> Callable[[], Awaitable[None]]:
        async def lead() -> None:
            assert not self.now, f"{name} leads beside {self.now}"
            self.now.add(name)
            self.terms.append(name)
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(clean_up)
                self.now.discard(name)

        return lead


def _elector(client: Client, name: str, **options: Any) -> Elector:
    return Elector(client, "ns", "lock", name, **options)  # type: ignore[arg-type]


@pytest.mark.looptime
@pytest.mark.usefixtures("virtual_clock")
class TestElector:
    async def test_the_second_takes_over_when_the_first_gives_back(self) -> None:
        leases, leaders = Leases(), Leaders()
        async with asyncio.TaskGroup() as group:
            first = group.create_task(_elector(Client(leases), "one").run(leaders.work_of("one", clean_up=20)))
            await asyncio.sleep(1)
            second = group.create_task(_elector(Client(leases), "two").run(leaders.work_of("two")))
            await asyncio.sleep(60)
            assert leaders.now == {"one"}
            first.cancel()
            await asyncio.sleep(25)
            assert leaders.now == {"two"}, "the lease is renewed while the work cleans up, then given back"
            second.cancel()
        assert leases.read(LEASE).spec.holder_identity == ""
        assert leases.read(LEASE).spec.lease_transitions == 1

    @pytest.mark.parametrize("fault", ["hang", "refuse", "lose"])
    async def test_a_leader_without_an_api_stops_before_another_may_lead(self, fault: str) -> None:
        leases, leaders, client = Leases(), Leaders(), Client(Leases())
        client.leases = leases
        async with asyncio.TaskGroup() as group:
            first = group.create_task(_elector(client, "one").run(leaders.work_of("one", clean_up=3.9)))
            await asyncio.sleep(5)
            second = group.create_task(_elector(Client(leases), "two").run(leaders.work_of("two")))
            await asyncio.sleep(30)
            client.fault = fault
            await asyncio.sleep(14)
            assert "one" not in leaders.now
            await asyncio.sleep(20)
            assert leaders.now == {"two"}
            client.fault = ""
            await asyncio.sleep(60)
            assert leaders.terms == ["one", "two"]
            first.cancel()
            second.cancel()

    @pytest.mark.parametrize("seed", range(6))
    async def test_whatever_fails_there_are_never_two(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        dice = random.Random(seed)
        monkeypatch.setattr("kruntimes.common.kube.lease.draw", dice.random)
        leases, leaders = Leases(), Leaders()
        clients = {name: Client(leases) for name in ("one", "two", "three")}
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_elector(client, name).run(leaders.work_of(name, clean_up=dice.random() * 3.9)))
                for name, client in clients.items()
            ]
            for _ in range(60):
                await asyncio.sleep(dice.random() * 8)
                dice.choice(list(clients.values())).fault = dice.choice(["", "", "hang", "refuse", "lose"])
            for client in clients.values():
                client.fault = ""
            await asyncio.sleep(60)
            assert len(leaders.now) == 1
            for task in tasks:
                task.cancel()
        assert len(leaders.terms) > 1

    async def test_a_lease_deleted_under_its_holder_is_not_taken_before_he_has_stopped(self) -> None:
        leases, leaders, client = Leases(), Leaders(), Client(Leases())
        client.leases = leases
        async with asyncio.TaskGroup() as group:
            first = group.create_task(_elector(client, "one").run(leaders.work_of("one", clean_up=3.9)))
            await asyncio.sleep(5)
            second = group.create_task(_elector(Client(leases), "two").run(leaders.work_of("two")))
            await asyncio.sleep(30)
            client.fault = "hang"
            leases.objects.clear()
            await asyncio.sleep(20)
            assert leaders.terms == ["one", "two"]
            first.cancel()
            second.cancel()

    async def test_work_that_does_not_stop_is_reported_before_another_may_lead(self) -> None:
        leases, client, stuck = Leases(), Client(Leases()), asyncio.Event()
        client.leases = leases
        release = asyncio.Event()

        async def stubborn() -> None:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        elector = _elector(client, "one", on_stuck=stuck.set)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(elector.run(stubborn))
            await asyncio.sleep(10)
            assert elector.leading()
            client.fault = "hang"
            await asyncio.wait_for(stuck.wait(), Timing().renew_deadline + Timing().stop_grace + 0.1)
            assert not elector.leading()
            release.set()
            task.cancel()

    async def test_run_ends_when_the_work_returns_and_passes_its_error_on(self) -> None:
        leases = Leases()

        async def returns() -> None:
            return None

        async def fails() -> None:
            raise LookupError("a bug")

        await _elector(Client(leases), "one").run(returns)
        with pytest.raises(ExceptionGroup) as caught:
            await _elector(Client(leases), "one").run(fails)
        assert caught.group_contains(LookupError)
        assert leases.read(LEASE).spec.holder_identity == ""


@pytest.mark.looptime
@pytest.mark.usefixtures("virtual_clock")
class TestHeartbeat:
    async def test_it_is_renewed_every_ten_seconds_and_a_failure_every_second(self) -> None:
        client = Client(Leases())
        heart = Heartbeat(client, "ns", "pod-a", "uid-a", ("pod-a", "uid-a"))  # type: ignore[arg-type]
        assert heart.last_renewed() == float("-inf")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(heart.run())
            await asyncio.sleep(35)
            assert client.requests == 5, "a patch that finds nothing, its create, and three renewals"
            client.fault = "refuse"
            await asyncio.sleep(10)
            refused_at, before = heart.last_renewed(), client.requests
            await asyncio.sleep(10)
            assert client.requests - before in (9, 10)
            assert heart.last_renewed() == refused_at
            client.fault = ""
            await asyncio.sleep(2)
            assert heart.last_renewed() > refused_at
            task.cancel()
        lease = client.leases.read(paths.leases("ns", "pod-a"))
        assert lease.spec.holder_identity == "uid-a"
        assert lease.metadata.owner_references[0].uid == "uid-a"

    async def test_a_lost_answer_counts_from_when_it_was_sent(self) -> None:
        client = Client(Leases())
        heart = Heartbeat(client, "ns", "pod-a", "uid-a", ("pod-a", "uid-a"))  # type: ignore[arg-type]
        async with asyncio.TaskGroup() as group:
            task = group.create_task(heart.run())
            await asyncio.sleep(1)
            assert heart.last_renewed() < asyncio.get_running_loop().time() - 0.9
            task.cancel()

    async def test_a_lease_that_was_deleted_is_made_again(self) -> None:
        client = Client(Leases())
        heart = Heartbeat(client, "ns", "pod-a", "uid-a", ("pod-a", "uid-a"))  # type: ignore[arg-type]
        async with asyncio.TaskGroup() as group:
            task = group.create_task(heart.run())
            await asyncio.sleep(5)
            client.leases.objects.clear()
            await asyncio.sleep(10)
            assert client.leases.objects
            task.cancel()


async def test_on_the_real_server_one_leads_and_the_other_follows(real: Kube, namespace: str) -> None:
    leaders = Leaders()
    timing = Timing(duration=2.0, renew_deadline=1.4, stop_grace=0.4, retry=0.1)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(Elector(real, namespace, "lock", "one", timing=timing).run(leaders.work_of("one")))
        await until(lambda: leaders.now)
        second = group.create_task(Elector(real, namespace, "lock", "two", timing=timing).run(leaders.work_of("two")))
        first.cancel()
        await until(lambda: leaders.now == {"two"})
        held = await real.get(paths.leases(namespace, "lock"), Lease)
        assert (held.spec.holder_identity, held.spec.lease_transitions) == ("two", 1)
        second.cancel()


async def test_on_the_real_server_a_heartbeat_is_a_lease_of_its_pod(real: Kube, namespace: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod-a"},
        "spec": {"containers": [{"name": "c", "image": "none"}]},
    }
    uid = (await real.create(paths.pods(namespace), pod, Object)).metadata.uid
    heart = Heartbeat(real, namespace, "pod-a", uid, ("pod-a", uid))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(heart.run())
        await until(lambda: heart.last_renewed() > 0)
        task.cancel()
    lease = await real.get(paths.leases(namespace, "pod-a"), Lease)
    assert lease.spec.holder_identity == uid
    assert lease.metadata.owner_references[0].uid == uid
    assert clock.parse(lease.spec.renew_time)
