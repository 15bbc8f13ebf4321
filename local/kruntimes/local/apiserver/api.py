"""The API as one synchronous value: verbs on resources, with every rule between a decoded request and the store. Pure.

The shell decodes, authenticates, authorises and encodes; the control plane's own loops call the same methods as
`SYSTEM`. Nothing here awaits, so each call is one transaction. What is returned is stored: it must not be changed.
"""

from collections.abc import Callable
from datetime import datetime

from kruntimes.local.apiserver.parts import Json, Parts
from kruntimes.local.apiserver.request import SYSTEM, User
from kruntimes.local.apiserver.resources import Resource, Resources
from kruntimes.local.apiserver.store import Event, Store
from kruntimes.local.apiserver.strategy import DeleteOptions, Strategies

Listener = Callable[[Event], None]


class Api:
    """resources, store and strategies may be read by anyone; they are written here alone.

    now, uid, suffix: where time and randomness come from.
    """

    def __init__(
        self,
        parts: Parts,
        *,
        now: Callable[[], datetime],
        uid: Callable[[], str],
        suffix: Callable[[], str],
        size: Callable[[Json], int],
    ) -> None:
        self.parts = parts
        self.resources = Resources.built_in()
        self.strategies = Strategies(parts.strategies)
        self._listeners: list[Listener] = []
        self.store = Store(size=size, on_write=self._wrote)
        self._now, self._uid, self._suffix = now, uid, suffix

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Calls *listener* with each write, right after it; it must not block and must not write (put a key into a
        set and wake a task). Returns what ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _wrote(self, event: Event) -> None:
        for listener in tuple(self._listeners):
            listener(event)

    def get(self, resource: Resource, namespace: str, name: str) -> Json:
        """The object; raises NotFound."""
        return self.store.get(resource, namespace, name)

    def create(self, resource: Resource, namespace: str, obj: Json, *, user: User = SYSTEM) -> Json:
        """Creates *obj* (a private copy, changed in place). Raises whatever `status` has for it."""
        raise NotImplementedError

    def update(
        self, resource: Resource, namespace: str, name: str, obj: Json, *, subresource: str = "", user: User = SYSTEM
    ) -> Json:
        """Puts *obj* in the place of what is there; its metadata.resourceVersion, if any, is the precondition."""
        raise NotImplementedError

    def change(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        edit: Callable[[Json], Json],
        *,
        subresource: str = "",
        user: User = SYSTEM,
    ) -> Json:
        """Applies *edit* to a private copy of the object and updates it: what loops write with."""
        raise NotImplementedError

    def delete(
        self, resource: Resource, namespace: str, name: str, options: DeleteOptions | None = None, *,
        user: User = SYSTEM,
    ) -> Json:  # fmt: skip
        """Deletes, or begins to; returns the object as it then is. Raises NotFound and Conflict."""
        raise NotImplementedError
