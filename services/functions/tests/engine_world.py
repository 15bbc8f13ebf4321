"""An engine with a clock that only tests move, and handlers that only write down what they are told."""

import json

from kruntimes.functions import failures
from kruntimes.functions.bounds import Bounds
from kruntimes.functions.engine import Admission, Cancelled, Emit, Engine, Kill, Start, Stop, Warn
from kruntimes.functions.invocation import Invocation, Why
from kruntimes.functions.wire.events import Call, Progress, Result


class Nothing:
    """A handler that is never called: the world carries effects out itself."""

    def start(self, invocation: Invocation) -> None:
        raise NotImplementedError

    def stop(self, invocation: Invocation, why: Why) -> None:
        raise NotImplementedError

    def kill(self, invocation: Invocation) -> None:
        raise NotImplementedError


class World:
    """The engine, and everything that it ever did: `log` in words, `results` by id."""

    def __init__(self, functions: tuple[str, ...] = ("fn",), *, now: float = 1000.0, **bounds: object) -> None:
        self.now = now
        self.engine = Engine(Bounds(**bounds), failures.for_agents, self)  # type: ignore[arg-type]
        self.log: list[str] = []
        self.results: dict[str, list[Result]] = {}
        self.started: dict[str, Invocation] = {}
        self.at_work: list[Invocation] = []
        for name in functions:
            self.engine.register(name, Nothing())

    # --- what the tests do

    def call(self, uid: str, function: str = "fn", *args: str, timeout: int = 0, payload: bytes = b"") -> Admission:
        call = Call(uid=uid, timeout=timeout, function=function, args=args, payload=payload)
        admission = self.engine.admit(call, self.sink, self.now)
        self._do()
        return admission

    def cancel(self, uid: str) -> Cancelled:
        cancelled = self.engine.cancel(uid, self.now)
        self._do()
        return cancelled

    def answer(self, uid: str, body: bytes = b"ok", code: int = 200) -> bool:
        invocation = self.started[uid]
        return self.finish(invocation, invocation.answer(body, code=code))

    def done(self, uid: str) -> bool:
        invocation = self.started[uid]
        return self.complete(invocation, invocation.answer(b"ok"))

    def ended(self, uid: str) -> None:
        self.end(self.started[uid])

    def passes(self, seconds: float) -> None:
        """Time passes, and what is due happens when it is due."""
        until = self.now + seconds
        while (due := self.engine.next_due()) is not None and due <= until:
            self.now = max(self.now, due)
            self.engine.advance(self.now)
            self._do()
        self.now = until
        self.engine.advance(self.now)
        self._do()

    def abandon(self) -> None:
        self.engine.abandon(self.now)
        self._do()

    def codes(self, uid: str) -> list[int]:
        return [result.code for result in self.results.get(uid, [])]

    def message(self, uid: str) -> str:
        document = json.loads(self.results[uid][0].body)
        assert document["status"] == self.results[uid][0].code
        return str(document["errorMessage"])

    def take_log(self) -> list[str]:
        log, self.log = self.log, []
        return log

    # --- Desk

    def finish(self, invocation: Invocation, result: Result) -> bool:
        first = self.engine.finish(invocation, result, self.now)
        self._do()
        return first

    def complete(self, invocation: Invocation, result: Result) -> bool:
        first = self.engine.complete(invocation, result, self.now)
        self._do()
        return first

    def fail(self, invocation: Invocation, failure: failures.Failure) -> bool:
        first = self.engine.fail(invocation, failure, self.now)
        self._do()
        return first

    def end(self, invocation: Invocation) -> None:
        self.engine.end(invocation, self.now)
        self._do()

    def report(self, invocation: Invocation, progress: Progress) -> None:
        self.engine.report(invocation, progress, self.now)
        self._do()

    # --- inside

    def sink(self, event: Result | Progress) -> None:
        if isinstance(event, Result):
            self.results.setdefault(event.uid, []).append(event)
            self.log.append(f"{event.uid} {event.code}")
        else:
            self.log.append(f"{event.uid} {event.done}/{event.total}")

    def _do(self) -> None:
        while self.engine.effects:
            match self.engine.effects.popleft():
                case Emit(sink, event):
                    sink(event)
                case Start(invocation):
                    self.started[invocation.uid] = invocation
                    self.at_work = [*(call for call in self.at_work if call.working), invocation]
                    self.log.append(f"{invocation.uid} started")
                case Stop(invocation, why):
                    self.log.append(f"{invocation.uid} stop {why.value}")
                case Kill(invocation):
                    self.log.append(f"{invocation.uid} kill")
                case Warn(invocation):
                    self.log.append(f"{invocation.uid} warning")
