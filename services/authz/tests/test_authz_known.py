"""What authz answers in the call that brings a check, and what it must not answer so soon."""

from collections.abc import Mapping
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from kruntimes.authz.decide import NO_TOKEN, UNAVAILABLE, Allow, Check, Deny, Policy
from kruntimes.authz.index import Index
from kruntimes.authz.metrics import Metrics
from kruntimes.authz.server import Authorizer
from kruntimes.common.access import Access, DecisionCache, Question, Requests, Verdict
from kruntimes.common.decisions import cache_key

UID = "2c24c1f0-9f8f-4f80-82d5-3dd16a12d1e6"
PATH = f"/v1/namespaces/team-a/runtimes/python/functions/{UID}:invoke"
CHECK = Check(method="POST", target=PATH, authorization=("Bearer secret",))
NOW, FAR = 0.0, 1e12


class Copies:
    """An index that holds one Run and one Runtime."""

    synced = current = True

    def __init__(self, *, run: bool = True, runtime: bool = True, synced: bool = True) -> None:
        self.run, self.runtime, self.synced = run, runtime, synced

    def name(self, *, namespace: str, uid: str) -> str | None:
        return "hello" if self.run else None

    def has_runtime(self, *, namespace: str, runtime: str) -> bool:
        return self.runtime


class NoBackend(Requests):
    """Nothing here may ask the API server."""

    async def request(self, *args: Any, **kwargs: Any) -> bytes:
        raise AssertionError(args)


def authorizer(remembered: Mapping[str, Verdict], copies: Copies) -> Authorizer:
    """One whose cache remembers verdicts, by the name of the Run that was asked about."""
    cache = DecisionCache()
    for name, verdict in remembered.items():
        verb = "get" if name else "list"
        question = Question(
            verb=verb, group="kruntimes.io", resource="runs", subresource="", namespace="team-a", name=name
        )
        cache.put(cache_key("secret", question, UID), verdict, now=FAR, wall=NOW, expiry=None)
    access = Access(NoBackend(), tasks=cast(Any, None), cache=cache)
    return Authorizer(index=cast(Index, copies), access=access, policy=Policy(), metrics=Metrics(CollectorRegistry()))


def test_a_granted_call_of_a_known_run_is_answered_at_once() -> None:
    given: list[Allow | Deny] = []
    assert authorizer({"hello": Verdict.ALLOW}, Copies()).known(CHECK, given.append)
    assert given == [Allow(shard="2c2", runtime="team-a/python")]


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        pytest.param(CHECK, UNAVAILABLE, id="index-not-listed"),
        pytest.param(Check(method="POST", target=PATH), NO_TOKEN, id="no-token"),
    ],
)
def test_what_needs_nobody_is_answered_at_once(check: Check, answer: object) -> None:
    given: list[Allow | Deny] = []
    assert authorizer({}, Copies(synced=False)).known(check, given.append)
    assert given == [answer]


@pytest.mark.parametrize(
    ("remembered", "copies"),
    [
        pytest.param({}, Copies(), id="nothing-remembered"),
        pytest.param({"hello": Verdict.FORBIDDEN}, Copies(), id="a-refusal-about-a-run"),
        pytest.param({"": Verdict.FORBIDDEN}, Copies(run=False), id="a-refusal-about-none"),
        pytest.param({"": Verdict.ALLOW}, Copies(run=False), id="no-such-run"),
        pytest.param({"hello": Verdict.ALLOW}, Copies(runtime=False), id="no-such-runtime"),
    ],
)
def test_what_is_to_be_asked_or_held_is_not(remembered: dict[str, Verdict], copies: Copies) -> None:
    """A refusal that came at once would tell by its time whether there is such a Run."""
    given: list[Allow | Deny] = []
    assert not authorizer(remembered, copies).known(CHECK, given.append)
    assert not given
