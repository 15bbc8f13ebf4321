"""What the operator knows of Runs and Pods, indexed for its decisions.

Fed with every change that a watch shows and with every write of our own as soon as it is decided, so that no
decision is made on less than what has been given away. Lookups do not grow with the number of Runs.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

from kruntimes.common.api.views import Pod
from kruntimes.controller.schedule import pending
from kruntimes.controller.views import ControlledRun, requests

T = TypeVar("T")


class Book:
    """Runs by what they wait for or where they are, and Pods by Runtime and UID. Keys are `namespace/name`."""

    def __init__(self) -> None:
        self._runs: dict[str, ControlledRun] = {}
        self._waiting: dict[str, dict[str, ControlledRun]] = {}
        self._occupants: dict[str, dict[str, ControlledRun]] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._pods: dict[str, Pod] = {}
        self._pods_by_runtime: dict[str, dict[str, Pod]] = {}
        self._pods_by_uid: dict[str, Pod] = {}
        self._accounts: dict[str, Counter[str]] = {}

    def put_run(self, key: str, run: ControlledRun | None) -> bool:
        """Takes a Run's newest form, None where it is gone; returns whether scheduling may now differ.

        It may where the Run waits, or where it takes or gives back capacity.
        """
        old = self._runs.pop(key, None)
        if old is not None:
            self._withdraw(key, old)
        if run is not None:
            self._runs[key] = run
            self._enter(key, run)
        occupied = ("" if old is None else old.occupies, "" if run is None else run.occupies)
        return occupied[0] != occupied[1] or (run is not None and pending(run) is not None)

    def see_run(self, key: str, run: ControlledRun | None) -> bool:
        """As `put_run`, for what a watch shows: it may be older than what one of our own writes has entered.

        A version that is not newer changes nothing, or capacity that has been given away would be given away again.
        """
        known = self._runs.get(key)
        if run is not None and known is not None and not _newer(run, known):
            return False
        return self.put_run(key, run)

    def run(self, key: str) -> ControlledRun | None:
        """The Run as it is known, our own unfinished writes included."""
        return self._runs.get(key)

    def waiting(self, runtime: str) -> list[ControlledRun]:
        """The Runs of a Runtime that wait for a Pod."""
        return list(self._waiting.get(runtime, {}).values())

    def waiting_count(self) -> int:
        """How many Runs wait, of all Runtimes."""
        return sum(len(runs) for runs in self._waiting.values())

    def occupants(self, pod_uid: str) -> Iterable[str]:
        """Keys of the Runs that take capacity of a Pod."""
        return list(self._occupants.get(pod_uid, ()))

    def used(self, pod_uid: str) -> Mapping[str, int]:
        """What the Runs assigned to a Pod take of it, by resource."""
        return self._used.get(pod_uid, {})

    def put_pod(self, key: str, pod: Pod | None) -> Pod | None:
        """Takes a Pod's newest form, None where it is gone; returns the one that was known before."""
        old = self._pods.pop(key, None)
        if old is not None:
            _drop(self._pods_by_runtime, runtime_key(old), key)
            self._count_account(old, -1)
            if self._pods_by_uid.get(old.metadata.uid) is old:
                del self._pods_by_uid[old.metadata.uid]
        if pod is not None:
            self._pods[key] = pod
            self._pods_by_runtime.setdefault(runtime_key(pod), {})[key] = pod
            self._pods_by_uid[pod.metadata.uid] = pod
            self._count_account(pod, 1)
        return old

    def pods(self, runtime: str) -> list[Pod]:
        """The Pods of a Runtime."""
        return list(self._pods_by_runtime.get(runtime, {}).values())

    def pod(self, key: str) -> Pod | None:
        """The Pod of that name."""
        return self._pods.get(key)

    def pod_by_uid(self, uid: str) -> Pod | None:
        """The Pod with that UID."""
        return self._pods_by_uid.get(uid)

    def accounts(self, namespace: str) -> frozenset[str]:
        """The ServiceAccounts of the Pods of a namespace."""
        return frozenset(self._accounts.get(namespace, ()))

    def _count_account(self, pod: Pod, by: int) -> None:
        account, namespace = pod.spec.service_account_name, pod.metadata.namespace
        if not account:
            return
        counts = self._accounts.setdefault(namespace, Counter())
        counts[account] += by
        if not counts[account]:
            del counts[account]
        if not counts:
            del self._accounts[namespace]

    def _enter(self, key: str, run: ControlledRun) -> None:
        if pending(run) is not None:
            self._waiting.setdefault(run.runtime_key, {})[key] = run
        if uid := run.occupies:
            self._occupants.setdefault(uid, {})[key] = run
            used = self._used.setdefault(uid, {})
            for name, count in requests(run).items():
                used[name] = used.get(name, 0) + count

    def _withdraw(self, key: str, run: ControlledRun) -> None:
        _drop(self._waiting, run.runtime_key, key)
        if uid := run.occupies:
            _drop(self._occupants, uid, key)
            used = self._used[uid]
            for name, count in requests(run).items():
                used[name] -= count
            if uid not in self._occupants:
                del self._used[uid]


def _newer(run: ControlledRun, known: ControlledRun) -> bool:
    """Whether *run* is later than *known*; versions of one resource are numbers that grow (Kubernetes 1.35)."""
    if run.metadata.uid != known.metadata.uid:
        return True
    try:
        return int(run.metadata.resource_version) > int(known.metadata.resource_version)
    except ValueError:
        return True


def runtime_key(pod: Pod) -> str:
    """`namespace/name` of the Runtime that a Pod belongs to."""
    return f"{pod.metadata.namespace}/{pod.runtime}"


def _drop(table: dict[str, dict[str, T]], group: str, key: str) -> None:
    members = table.get(group)
    if members is not None and members.pop(key, None) is not None and not members:
        del table[group]
