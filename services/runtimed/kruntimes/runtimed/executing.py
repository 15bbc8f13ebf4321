"""Tasks at the Runtime Server: handed over, asked for, stopped, and forgotten once all is written down.

No rule stands here; what may be repeated is said by the contract (executor.v1, service Runtime).
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import grpc

from kruntimes.common import clock
from kruntimes.common.api.reasons import Reason
from kruntimes.common.api.views import Run
from kruntimes.common.errors import NotReady, Terminal
from kruntimes.pb import executor_v1_pb2 as pb
from kruntimes.runtimed import taskoutputs
from kruntimes.runtimed.certainty import Uncertain, ask
from kruntimes.runtimed.codes import execution_ending
from kruntimes.runtimed.decide import CANCEL_SECONDS
from kruntimes.runtimed.errorinfo import info_of
from kruntimes.runtimed.executor import Executor
from kruntimes.runtimed.held import Held
from kruntimes.runtimed.observed import Ending, Execution, ExecutionState, Stage
from kruntimes.runtimed.registration import RuntimeServer
from kruntimes.runtimed.source import Home, task_path

FIRST_LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.02, 0.5
"""Between two looks whether a task that was cancelled has ended."""


@dataclass(slots=True, kw_only=True)
class Executions:
    """Executes at *server*. home: where sources and outputs lie. tasks, wake: as in `Registrations`."""

    server: RuntimeServer
    home: Home
    tasks: asyncio.TaskGroup
    wake: Callable[[str], None]

    def begin(self, run: Run, held: Held) -> None:
        """Begins to hand it over; `held.stage` tells when that has ended."""
        held.stage, held.since, held.execution = Stage.REGISTERING, clock.monotonic(), None
        held.task = self.tasks.create_task(self._executing(held, request_of(run, held, self.home)))

    async def _executing(self, held: Held, request: pb.ExecuteRequest) -> None:
        """Executes under the same id until that is certain, or too late."""

        async def send(_: float) -> Stage:
            await self._executor.execute(request)
            return Stage.REGISTERED

        async def read(error: grpc.aio.AioRpcError, text: str) -> Ending | Uncertain:
            if error.code() is grpc.StatusCode.ALREADY_EXISTS:
                # An attempt before this one, of which the last step was lost with its process.
                trouble = await self._stopped(held)
                return Uncertain(text, at_once=True) if trouble is None else Uncertain(trouble)
            return execution_ending(error.code().name, info_of(error), error.details() or "") or Uncertain(text)

        await ask(held, self.server, send, read, what="execution", bug=Reason.TASK_FAILED, wake=self.wake)

    async def _stopped(self, held: Held) -> str | None:
        """Stops what an earlier attempt has left; why that is not known to be done, or None."""
        try:
            await stop(self._executor, held.epoch.run_uid)
        except NotReady as error:
            return str(error)
        return None

    async def status(self, held: Held) -> Execution:
        """What the server says of it, with its outputs once it has succeeded. Raises NotReady."""
        epoch = held.epoch
        execution = await self._executor.status(epoch.run_uid)
        if execution.state is not ExecutionState.SUCCEEDED:
            return execution
        try:
            path = self.home.outputs(uid=epoch.run_uid, attempt=epoch.attempt)
            written = await asyncio.to_thread(taskoutputs.read, path)
            outputs = taskoutputs.checked({**execution.outputs, **written})
        except Terminal as error:
            return replace(execution, state=ExecutionState.FAILED, message=str(error), outputs={})
        return replace(execution, outputs=outputs)

    async def cancel(self, held: Held) -> None:
        """Asks for its end. Raises NotReady."""
        await self._executor.cancel(held.epoch.run_uid)

    async def end(self, held: Held) -> None:
        """Stops what runs, waits for its end, and lets the server forget it. Raises NotReady; it may be repeated."""
        if held.sent:
            await stop(self._executor, held.epoch.run_uid)

    @property
    def _executor(self) -> Executor:
        return self.server.executor


async def stop(executor: Executor, uid: str) -> None:
    """Stops the task *uid*, waits for its end, and lets the server forget it. Raises NotReady; it may be repeated."""
    wait = FIRST_LOOK_SECONDS
    await executor.cancel(uid)
    try:
        async with asyncio.timeout(CANCEL_SECONDS):
            while (await executor.status(uid)).state is ExecutionState.RUNNING:
                await asyncio.sleep(wait)
                wait = min(wait * 2, LONGEST_LOOK_SECONDS)
    except TimeoutError:
        raise NotReady(f"the task did not end within {CANCEL_SECONDS:.0f} s of its cancellation") from None
    await executor.forget(uid)


def request_of(run: Run, held: Held, home: Home) -> pb.ExecuteRequest:
    """What Execute is asked for *run*: the same for every repeat, in every process of ours.

    The time-out is the Run's whole lifetime, a backstop of the server's own: the lifetime that counts began with the
    first claim, and its end is decided here.
    """
    task, source, epoch = run.spec.mode.task, run.spec.source, held.epoch
    assert task is not None, "only tasks are executed"
    inline = source is not None and source.inline is not None
    env = {variable.name: variable.value for variable in run.spec.env}
    env[taskoutputs.VARIABLE] = str(home.outputs(uid=epoch.run_uid, attempt=epoch.attempt))
    return pb.ExecuteRequest(
        id=epoch.run_uid,
        args=task.args,
        env=env,
        timeout_seconds=math.ceil(run.spec.timeout_seconds or 0.0),
        working_dir=str(held.working_dir),
        entrypoint=task_path(task.entrypoint) if inline or task.entrypoint else "",
    )
