"""The figures: the source document's six, its component, and the same for Prometheus."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from tests.test_manager_calls import Caller, call

from kruntimes.functions.invocation import Invocation, Why
from kruntimes.functions.manager import Manager
from kruntimes.functions.metrics import Component, PrometheusCollector, figures, registered

PREFIX = "netdata.go.plugin.framework.functions.manager."
SIX = (
    "invocations_active", "invocations_awaiting_result", "scheduler_pending", "cancel_fallback_total",
    "late_terminal_dropped_total", "duplicate_uid_ignored_total",
)  # fmt: skip


class Waits:
    def start(self, invocation: Invocation) -> None:
        self.invocation = invocation

    def stop(self, invocation: Invocation, why: Why) -> None:
        pass

    def kill(self, invocation: Invocation) -> None:
        invocation.end()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_all_six_figures_move_as_they_should() -> None:
    clock = Clock()
    manager, caller, host = Manager(now=clock), Caller(), Waits()
    manager.register("fn", host)
    assert figures(manager.stats) == dict.fromkeys([*(PREFIX + name for name in SIX), PREFIX + "calls_total"], 0)
    for uid in ("t1", "t2", "t1"):
        manager.admit(call(uid), caller)
    first = host.invocation
    first.end()
    assert [figures(manager.stats)[PREFIX + name] for name in SIX] == [2, 1, 1, 0, 0, 1]
    manager.cancel("t1")
    clock.now += 5.0
    manager._tick()
    assert [figures(manager.stats)[PREFIX + name] for name in SIX] == [1, 0, 0, 1, 0, 1]
    assert not manager.answer(first.answer(b"late"))
    assert not first.finish(first.answer(b"later"))
    assert [figures(manager.stats)[PREFIX + name] for name in SIX] == [1, 0, 0, 1, 2, 1]
    assert figures(manager.stats)[PREFIX + "calls_total"] == 3
    host.invocation.complete(host.invocation.answer(b"second"))
    await manager.stop()
    assert [figures(manager.stats)[PREFIX + name] for name in SIX] == [0, 0, 0, 1, 2, 1]


async def test_the_component_is_registered_while_the_manager_runs() -> None:
    class Service:
        def __init__(self) -> None:
            self.components: dict[str, tuple[Component, Callable[[], dict[str, int]]]] = {}

        def register(self, component: Component, read: Callable[[], dict[str, int]]) -> None:
            self.components[component.name] = component, read

        def unregister(self, name: str) -> None:
            del self.components[name]

    manager, service = Manager(), Service()
    with registered(service, lambda: manager.stats):
        component, read = service.components["functions.manager"]
        assert (component.module, component.job, component.autogen_charts) == ("functions", "manager", True)
        assert read()[PREFIX + "invocations_active"] == 0
    assert service.components == {}
    with registered(None, lambda: manager.stats):
        pass


async def test_prometheus_sees_the_same() -> None:
    manager, caller = Manager(), Caller()
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(lambda: manager.stats))
    manager.admit(call("t1", "nowhere"), caller)
    manager.admit(call("t1", "nowhere"), caller)
    name = "kruntimes_functions_manager_"
    for figure in SIX:
        assert registry.get_sample_value(name + figure) is not None
    assert registry.get_sample_value(name + "duplicate_uid_ignored_total") == 1
    assert registry.get_sample_value(name + "answers_total", {"code": "501"}) == 1
