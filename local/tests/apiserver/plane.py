"""A core with identities, rights and rules plugged in, its own clock and predictable names; for tests."""

import itertools
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

from kruntimes.local.apiserver import access, bootstrap
from kruntimes.local.apiserver.api import Api, Call, private
from kruntimes.local.apiserver.kinds.registry import ACTS, STRATEGIES
from kruntimes.local.apiserver.parts import Parts
from kruntimes.local.apiserver.request import Credentials, User, attributes
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.store import Event
from kruntimes.local.apiserver.tokens import TokenKey

Json = dict[str, Any]
Key = TypeVar("Key")

KEY = TokenKey.generate()
START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


class Plane:
    """The core and the shortest ways to use it. more: what else is plugged in."""

    def __init__(self, *more: Callable[[Parts], None]) -> None:
        self.now = START
        parts = Parts(strategies=dict(STRATEGIES), acts=dict(ACTS))
        access.install(parts, key=KEY)
        for install in more:
            install(parts)
        uids, suffixes = itertools.count(1), itertools.count(1)
        self.api = Api(
            parts,
            now=lambda: self.now,
            uid=lambda: f"{next(uids):08x}-0000-4000-8000-000000000000",
            suffix=lambda: f"{next(suffixes):05}",
            size=lambda obj: 1000,
        )
        for path, namespace, obj in bootstrap.objects(client_ca="", port=6443):
            resource = self.api.resources.find(*path)
            assert resource is not None
            self.api.create(resource, namespace, obj)

    def pass_time(self, seconds: float) -> None:
        """Moves the clock."""
        self.now += timedelta(seconds=seconds)

    def of(self, plural: str) -> Resource:
        """The resource of that plural name; all are unique here."""
        return next(r for r in self.api.resources if r.plural == plural)

    def make(self, plural: str, name: str, *, by: User | None = None, namespace: str = "default", **rest: Any) -> Json:
        """Creates an object. metadata may be among the rest."""
        resource = self.of(plural)
        meta = {"name": name, **rest.pop("metadata", {})}
        call = Call() if by is None else Call(user=by)
        obj = private({"metadata": meta, **rest})
        return self.api.create(resource, namespace if resource.namespaced else "", obj, call)

    def remove(self, plural: str, name: str, *, namespace: str = "default") -> None:
        """Deletes an object."""
        resource = self.of(plural)
        self.api.delete(resource, namespace if resource.namespaced else "", name)

    def found(self, plural: str, name: str, *, namespace: str = "default") -> Json | None:
        """The object, or None."""
        resource = self.of(plural)
        return self.api.store.peek(resource.key, namespace if resource.namespaced else "", name)

    def all(self, plural: str, namespace: str | None = None) -> list[Json]:
        """Every object of a kind."""
        return self.api.store.list(self.of(plural).key, namespace)

    def post(self, path: str, body: Json, *, by: User | None = None) -> Json:
        """What a POST to a review or to a subresource with a body of its own answers."""
        call = Call() if by is None else Call(user=by)
        request = attributes(call.user, "POST", path)
        key = (request.group, request.resource)
        ctx = self.api.context(call)
        if request.subresource:
            return self.api.parts.acts[*key, request.subresource](self.api, request, body, ctx)
        return self.api.parts.reviews[key](self.api, request, body, ctx)

    def token(self, account: str, *, namespace: str = "default", **spec: Any) -> str:
        """A new token for a ServiceAccount."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        return str(self.post(path, {"spec": spec})["status"]["token"])

    def who(self, token: str) -> User:
        """Who the bearer of a token is."""
        return self.api.parts.authenticate(Credentials(authorization=f"Bearer {token}"))


POD: Json = {"containers": [{"name": "main", "image": "none"}]}


def user(name: str, *groups: str) -> User:
    """Somebody."""
    return User(name=name, groups=(*groups, "system:authenticated"))


class Looping(Protocol[Key]):
    """A loop of the control plane, as far as its decisions go."""

    def keys(self, event: Event) -> Iterable[Key]:
        """What a write asks to be looked at."""

    def reconcile(self, key: Key) -> float | None:
        """Looks at it."""


MAX_TURNS = 2000


class Loops:
    """Runs loops until nothing is left to do, with no clock and no tasks. waits: what each key's last look returned."""

    def __init__(self, plane: Plane, *loops: Looping[Any]) -> None:
        self._pending: dict[tuple[int, Any], None] = {}
        self._loops = loops
        self.waits: dict[Any, float] = {}
        plane.api.listen(self._wrote)

    def _wrote(self, event: Event) -> None:
        for i, loop in enumerate(self._loops):
            for key in loop.keys(event):
                self._pending[i, key] = None

    def look(self, key: Any, *, loop: int = 0) -> None:
        """Asks a loop to look at a key when they run the next time."""
        self._pending[loop, key] = None

    def settle(self) -> None:
        """Until nothing is left; fails where that has no end."""
        for _ in range(MAX_TURNS):
            if not self._pending:
                return
            i, key = next(iter(self._pending))
            del self._pending[i, key]
            wait = self._loops[i].reconcile(key)
            self.waits.pop(key, None)
            if wait is not None:
                self.waits[key] = wait
        raise AssertionError(f"does not come to rest: {list(self._pending)[:5]}")
