"""The rules of a subscription, one case each, and what must hold whatever a client does."""

from collections.abc import Mapping

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kruntimes.router.discovery import Request, Response
from kruntimes.router.snapshot import Key, Snapshot
from kruntimes.router.subscription import CHUNK_BYTES, Flight, Reply, Subscription

T = "type.googleapis.com/T"


def world(**bodies: str) -> Snapshot:
    return Snapshot.of({Key(T, name): body.encode() for name, body in bodies.items()})


def version(snapshot: Snapshot, name: str) -> str:
    resource = snapshot.get(T, name)
    assert resource is not None
    return resource.version


def opened(*names: str, wildcard: bool = False, held: Mapping[str, str] | None = None) -> Subscription:
    return Subscription.open(Request(T, subscribe=names, initial_versions=held or {}), wildcard=wildcard)


def answer(subscription: Subscription, snapshot: Snapshot, nonce: str = "1") -> tuple[Subscription, Response]:
    after, response = subscription.next(snapshot, nonce=nonce)
    assert response is not None
    return after, response


def silent(subscription: Subscription, snapshot: Snapshot) -> Subscription:
    after, response = subscription.next(snapshot, nonce="unused")
    assert response is None
    return after


def acknowledged(subscription: Subscription, nonce: str = "1") -> Subscription:
    after, reply = subscription.receive(Request(T, nonce=nonce))
    assert reply is Reply.ACK
    return after


def refused(subscription: Subscription, nonce: str = "1") -> Subscription:
    after, reply = subscription.receive(Request(T, nonce=nonce, error="no"))
    assert reply is Reply.NACK
    return after


@pytest.mark.parametrize(
    ("subscription", "sent", "removed"),
    [
        pytest.param(opened(wildcard=True), {"a", "b"}, set(), id="no-names-mean-all-of-a-wildcard-type"),
        pytest.param(opened("*"), {"a", "b"}, set(), id="a-star-means-all"),
        pytest.param(opened("*", "c"), {"a", "b"}, {"c"}, id="a-star-and-an-unknown-name"),
        pytest.param(opened(), set(), set(), id="no-names-of-another-type-are-answered-with-nothing"),
        pytest.param(opened("a"), {"a"}, set(), id="a-name"),
        pytest.param(opened("a", wildcard=True), {"a"}, set(), id="a-name-of-a-wildcard-type-is-only-that-name"),
        pytest.param(opened("a", "c"), {"a"}, {"c"}, id="an-unknown-name-is-told-to-be-absent"),
        pytest.param(
            opened("a", "b", held={"a": version(world(a="1", b="2"), "a"), "b": "old"}),
            {"b"},
            set(),
            id="a-resumed-stream-is-sent-what-differs",
        ),
        pytest.param(
            opened(wildcard=True, held={"a": version(world(a="1"), "a"), "gone": "x"}),
            {"b"},
            {"gone"},
            id="a-resumed-wildcard-learns-what-came-and-went",
        ),
        pytest.param(
            opened("a", "b", held={n: version(world(a="1", b="2"), n) for n in ("a", "b")}),
            set(),
            set(),
            id="a-resumed-stream-of-the-same-world-is-sent-nothing",
        ),
    ],
)
def test_the_first_response(subscription: Subscription, sent: set[str], removed: set[str]) -> None:
    _, response = answer(subscription, world(a="1", b="2"))
    assert (set(response.resources), set(response.removed), response.nonce) == (sent, removed, "1")


def test_after_the_first_response_nothing_is_sent_without_a_change() -> None:
    snapshot = world(a="1")
    subscription, _ = answer(opened("a"), snapshot)
    silent(acknowledged(subscription), snapshot)


def test_one_response_is_under_way_and_changes_are_gathered() -> None:
    subscription, _ = answer(opened(wildcard=True), world(a="1"))
    subscription = silent(subscription.changed(["a"]), world(a="2"))
    subscription = silent(subscription.changed(["a", "b"]), world(a="3", b="1"))
    last = world(a="3", b="1")
    _, response = answer(acknowledged(subscription), last, "2")
    assert {name: each.version for name, each in response.resources.items()} == {
        name: version(last, name) for name in ("a", "b")
    }


def test_a_change_that_was_taken_back_meanwhile_is_not_sent() -> None:
    subscription, _ = answer(opened("a"), world(a="1"))
    subscription = acknowledged(subscription).changed(["a"])
    silent(subscription, world(a="1"))


def test_a_withdrawn_resource_is_removed_once() -> None:
    subscription, _ = answer(opened("a"), world(a="1"))
    subscription, response = answer(acknowledged(subscription).changed(["a"]), world(), "2")
    assert response.removed == ("a",)
    silent(acknowledged(subscription, "2").changed(["a"]), world())


def test_changes_of_other_names_are_none_of_ours() -> None:
    subscription, _ = answer(opened("a"), world(a="1"))
    subscription = acknowledged(subscription)
    assert subscription.changed(["b"]) == subscription


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(Request(T, nonce="0"), id="an-older-nonce"),
        pytest.param(Request(T, nonce="0", error="no"), id="an-older-refusal"),
    ],
)
def test_a_stale_nonce_acknowledges_nothing(request_: Request) -> None:
    subscription, _ = answer(opened("a"), world(a="1"))
    after, reply = subscription.receive(request_)
    assert reply is Reply.STALE
    assert after == subscription


def test_names_in_an_acknowledgement_count() -> None:
    subscription, _ = answer(opened("a"), world(a="1", b="1"))
    subscription, reply = subscription.receive(Request(T, nonce="1", subscribe=("b",)))
    assert reply is Reply.ACK
    _, response = answer(subscription, world(a="1", b="1"), "2")
    assert set(response.resources) == {"b"}


def test_names_may_be_added_while_a_response_is_under_way() -> None:
    subscription, _ = answer(opened("a"), world(a="1", b="1"))
    subscription, reply = subscription.receive(Request(T, subscribe=("b",)))
    assert reply is Reply.NONE
    subscription = silent(subscription, world(a="1", b="1"))
    _, response = answer(acknowledged(subscription), world(a="1", b="1"), "2")
    assert set(response.resources) == {"b"}


def test_a_repeated_name_is_answered_though_nothing_changed() -> None:
    snapshot = world(a="1")
    subscription, _ = answer(opened("a"), snapshot)
    subscription, _ = acknowledged(subscription).receive(Request(T, subscribe=("a",)))
    _, response = answer(subscription, snapshot, "2")
    assert set(response.resources) == {"a"}


def test_a_name_that_was_given_up_is_sent_again_when_it_is_wanted_again() -> None:
    snapshot = world(a="1")
    subscription, _ = answer(opened("a"), snapshot)
    subscription, _ = acknowledged(subscription).receive(Request(T, unsubscribe=("a",)))
    subscription = silent(subscription.changed(["a"]), world(a="2"))
    assert subscription.held == {}
    subscription, _ = subscription.receive(Request(T, subscribe=("a",)))
    _, response = answer(subscription, snapshot, "2")
    assert set(response.resources) == {"a"}


def test_a_name_that_is_given_up_under_a_wildcard_is_owed() -> None:
    snapshot = world(a="1", b="1")
    subscription, _ = answer(opened("*", "a"), snapshot)
    subscription, _ = acknowledged(subscription).receive(Request(T, unsubscribe=("a",)))
    _, response = answer(subscription, snapshot, "2")
    assert set(response.resources) == {"a"}


def test_giving_the_wildcard_up_leaves_the_names() -> None:
    snapshot = world(a="1", b="1")
    subscription, _ = answer(opened("*", "a"), snapshot)
    subscription, _ = acknowledged(subscription).receive(Request(T, unsubscribe=("*",)))
    assert set(subscription.held) == {"a"}
    silent(subscription.changed(["b"]), world(a="1", b="2"))


def test_a_wildcard_that_is_added_later_brings_the_rest() -> None:
    snapshot = world(a="1", b="1")
    subscription, _ = answer(opened("a"), snapshot)
    subscription, _ = acknowledged(subscription).receive(Request(T, subscribe=("*",)))
    _, response = answer(subscription, snapshot, "2")
    assert set(response.resources) == {"b"}


def test_a_refused_version_is_not_repeated_but_the_next_is_sent() -> None:
    subscription, _ = answer(opened("a"), world(a="1"))
    subscription, _ = answer(acknowledged(subscription).changed(["a"]), world(a="bad"), "2")
    subscription = refused(subscription, "2")
    subscription = silent(subscription.changed(["a"]), world(a="bad"))
    _, response = answer(subscription.changed(["a"]), world(a="3"), "3")
    assert set(response.resources) == {"a"}


def test_after_a_refusal_even_the_version_before_it_is_sent_again() -> None:
    subscription, _ = answer(opened("a"), world(a="1"))
    subscription, _ = answer(acknowledged(subscription).changed(["a"]), world(a="bad"), "2")
    _, response = answer(refused(subscription, "2").changed(["a"]), world(a="1"), "3")
    assert set(response.resources) == {"a"}


def test_a_refused_resource_that_is_withdrawn_is_removed() -> None:
    subscription, _ = answer(opened("a"), world(a="bad"))
    _, response = answer(refused(subscription).changed(["a"]), world(), "2")
    assert response.removed == ("a",)


def test_what_was_refused_is_told_again_when_it_is_made_anew_after_its_removal() -> None:
    subscription, _ = answer(opened("a"), world(a="bad"))
    subscription, _ = answer(refused(subscription).changed(["a"]), world(), "2")
    _, response = answer(acknowledged(subscription, "2").changed(["a"]), world(a="bad"), "3")
    assert set(response.resources) == {"a"}


def test_a_refused_removal_is_not_repeated() -> None:
    subscription, _ = answer(opened("a"), world(a="1"))
    subscription, _ = answer(acknowledged(subscription).changed(["a"]), world(), "2")
    silent(refused(subscription, "2").changed(["a"]), world())


def test_after_the_refusal_of_several_each_travels_alone() -> None:
    snapshot = world(a="1", b="bad", c="1")
    subscription, response = answer(opened("a", "b", "c"), snapshot)
    assert len(response.resources) == 3
    subscription = refused(subscription)
    told = []
    for nonce in ("2", "3", "4"):
        subscription, response = answer(subscription, snapshot, nonce)
        told.append(response.names)
        subscription = refused(subscription, nonce) if "b" in response.names else acknowledged(subscription, nonce)
    assert told == [("a",), ("b",), ("c",)]
    assert set(subscription.held) == {"a", "b", "c"}
    silent(subscription.changed(["a", "b", "c"]), snapshot)


def test_after_the_refusal_of_several_nothing_is_known_of_any() -> None:
    """The client may have taken the good ones: going back to what it had before must reach it."""
    first = world(a="1", b="1")
    subscription, _ = answer(opened("a", "b"), first)
    subscription, _ = answer(acknowledged(subscription).changed(["a", "b"]), world(a="2", b="bad"), "2")
    subscription = refused(subscription, "2").changed(["a", "b"])
    subscription, response = answer(subscription, first, "3")
    assert response.names == ("a",)
    _, response = answer(acknowledged(subscription, "3"), first, "4")
    assert response.names == ("b",)


def test_suspects_do_not_hold_up_the_others() -> None:
    snapshot = world(a="bad", b="1", c="1")
    subscription, _ = answer(opened("a", "b"), snapshot)
    subscription, _ = refused(subscription).receive(Request(T, subscribe=("c",)))
    _, response = answer(subscription, snapshot, "2")
    assert response.names == ("c",)


def test_a_large_world_is_sent_in_pieces() -> None:
    body = "x" * (CHUNK_BYTES // 2)
    snapshot = world(a=body, b=body + "b", c=body + "c")
    subscription, first = answer(opened(wildcard=True), snapshot)
    subscription, second = answer(acknowledged(subscription), snapshot, "2")
    assert (set(first.resources), set(second.resources)) == ({"a", "b"}, {"c"})
    silent(acknowledged(subscription, "2"), snapshot)


def test_a_resource_over_the_size_of_a_piece_travels_by_itself() -> None:
    snapshot = world(a="x" * (2 * CHUNK_BYTES), b="1")
    _, response = answer(opened(wildcard=True), snapshot)
    assert set(response.resources) == {"a"}


def test_a_subscription_is_a_value() -> None:
    before = opened("a")
    after, _ = before.next(world(a="1"), nonce="1")
    assert before == opened("a")
    assert before.flight is None
    assert after.flight == Flight("1", {"a": version(world(a="1"), "a")})


NAMES = st.sampled_from(["a", "b", "c", "d"])
BODIES = st.sampled_from(["1", "2", "3", "bad1", "bad2"])


class Conversation(RuleBasedStateMachine):
    """A client that follows the protocol, on a stream that breaks now and then, beside a changing world.

    It refuses every response with a body that begins with `bad`, taking none of it.
    """

    @initialize(names=st.frozensets(NAMES), wildcard=st.booleans(), bodies=st.dictionaries(NAMES, BODIES))
    def connect(self, names: frozenset[str], wildcard: bool, bodies: dict[str, str]) -> None:
        self.world = dict(bodies)
        self.names = set(names)
        self.wildcard = wildcard and not names
        self.mine: dict[str, tuple[str, str]] = {}
        self.nonce = 0
        self.response: Response | None = None
        self.asked_when_sent: frozenset[str] = frozenset()
        self.open()

    def open(self) -> None:
        self.response = None
        held = {name: seen for name, (seen, _) in self.mine.items()}
        self.asked = set(self.names)
        self.subscription = opened(*sorted(self.names), wildcard=self.wildcard, held=held)
        self.answered = False
        self.repeated: set[tuple[str, str]] = set()

    def snapshot(self) -> Snapshot:
        return world(**self.world)

    def wants(self, name: str) -> bool:
        return self.wildcard or name in self.names

    @rule(name=NAMES, body=BODIES | st.none())
    def change(self, name: str, body: str | None) -> None:
        if body is None:
            self.world.pop(name, None)
        else:
            self.world[name] = body
        self.subscription = self.subscription.changed([name])

    @rule()
    def send(self) -> None:
        self.nonce += 1
        self.subscription, response = self.subscription.next(self.snapshot(), nonce=str(self.nonce))
        if response is None:
            assert self.answered or self.response is not None
            return
        assert self.response is None, "two responses under way"
        self.answered = True
        self.response = response
        self.asked_when_sent = frozenset(self.asked)  # a name may be given up while its answer is under way

    @precondition(lambda self: self.response is not None)
    @rule(names=st.frozensets(NAMES))
    def reply(self, names: frozenset[str]) -> None:
        response = self.response
        assert response is not None
        self.response = None
        bodies = {name: resource.body.decode() for name, resource in response.resources.items()}
        bad = {name for name, body in bodies.items() if body.startswith("bad")}
        if len(response.names) == 1 and bad:
            (only,) = response.names
            told = (only, response.resources[only].version)
            assert told not in self.repeated or only in self.asked_when_sent, "a refused version is repeated unasked"
            self.repeated.add(told)
        if not bad or len(response.names) == 1:  # else each of them comes once more, alone
            self.asked -= set(response.names)
        if not bad:
            for name, body in bodies.items():
                if self.wants(name):
                    self.mine[name] = (response.resources[name].version, body)
            for name in response.removed:
                self.mine.pop(name, None)
            self.repeated = {each for each in self.repeated if each[0] not in response.names}
        error = "bad" if bad else None
        added = () if self.wildcard else tuple(sorted(names - self.names))
        self.names.update(added)
        self.asked.update(added)
        request = Request(T, nonce=response.nonce, error=error, subscribe=added)
        self.subscription, reply = self.subscription.receive(request)
        assert reply is (Reply.NACK if bad else Reply.ACK)

    @precondition(lambda self: not self.wildcard)
    @rule(name=NAMES)
    def give_up(self, name: str) -> None:
        if name in self.names:
            self.names.discard(name)
            self.asked.discard(name)
            self.mine.pop(name, None)
            self.subscription, _ = self.subscription.receive(Request(T, unsubscribe=(name,)))

    @rule()
    def reconnect(self) -> None:
        self.open()

    @invariant()
    def nothing_unwanted_is_held(self) -> None:
        if not self.subscription.compare:
            assert all(self.subscription.wants(name) for name in self.subscription.held)

    def teardown(self) -> None:
        """Whatever happened: left alone, the client ends with the good part of the world, in few responses."""
        if not hasattr(self, "subscription"):
            return
        for _ in range(4 * len(self.world) + 12):
            self.send()
            if self.response is None:
                break
            self.reply(frozenset())
        else:
            raise AssertionError("the conversation does not come to rest")
        for name, body in self.world.items():
            if self.wants(name) and not body.startswith("bad"):
                assert self.mine[name][1] == body
        assert all(name in self.world for name in self.mine)


TestConversation = Conversation.TestCase
TestConversation.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
