"""A real Runtime Server process for tests, and a client that speaks executor.v1 to it."""

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.rpc import error_details_pb2, status_pb2
from tests.ordinary_user import as_ordinary_user

from kruntimes.pb import executor_v1_pb2 as pb
from kruntimes.pb import executor_v1_pb2_grpc as rpc
from kruntimes.runtime.proc import tree

FUNCTIONS = Path(__file__).parent / "functions"
PATIENCE_SECONDS = 30.0
"""For what takes milliseconds; only a fault reaches it."""
READY, FAILED = pb.FUNCTION_REGISTRATION_STATE_READY, pb.FUNCTION_REGISTRATION_STATE_FAILED
_uids = itertools.count(1)


class Server:
    """`python -m kruntimes.runtime` with its socket and log in *folder*."""

    def __init__(
        self, folder: Path, host: str, *, init_seconds: float = 30.0, runtimed_pid: int | None = None,
        ordinary_user: bool = False, options: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.socket = folder / "executor.sock"
        self.functions_socket = folder / "functions.sock"
        self.log = folder / "log"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("KRUNTIMES_")}
        environment |= {"KRUNTIMES_EXECUTOR_SOCKET": str(self.socket), "KRUNTIMES_BIND_ADDRESS": "127.0.0.1"}
        environment |= {"KRUNTIMES_STATE_DIR": str(folder)}
        environment |= {"KRUNTIMES_FUNCTIONS_SOCKET": str(self.functions_socket), "FROM_THE_CONTAINER": "yes"}
        environment |= {"KRUNTIMES_RUNTIMED_PID": str(os.getpid() if runtimed_pid is None else runtimed_pid)}
        argv = [sys.executable, "-m", "kruntimes.runtime", "--host", host, "--metrics-port", "0"]
        argv += ["--init-seconds", str(init_seconds), *options]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                as_ordinary_user(argv) if ordinary_user else argv,
                env=environment, stderr=log, stdout=log, stdin=subprocess.DEVNULL, cwd=folder,
            )  # fmt: skip

    def text(self) -> str:
        return self.log.read_text()

    def processes(self) -> list[int]:
        """Every process below the server."""
        return tree.descendants(self.process.pid)

    def zombies(self) -> list[int]:
        return [pid for pid in self.processes() if _state(pid) == "Z"]

    def stop(self) -> int:
        """Ends the server in order; returns its exit status once nothing below it is left."""
        below = self.processes()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(PATIENCE_SECONDS)
        wait_until(lambda: not any(map(alive, below)), "processes of an ended server live on")
        return status


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def alive(pid: int) -> bool:
    return _state(pid) not in ("", "Z")


def wait_until(condition: Callable[[], object], otherwise: str, *, seconds: float = PATIENCE_SECONDS) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, otherwise
        time.sleep(0.005)


async def until(condition: Callable[[], object], otherwise: str, *, seconds: float = PATIENCE_SECONDS) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, otherwise
        await asyncio.sleep(0.005)


@dataclass
class Failure:
    """A gRPC status, taken apart."""

    code: str
    reason: str
    metadata: dict[str, str]

    @property
    def message(self) -> str:
        return self.metadata.get("message", "")

    @property
    def type(self) -> str:
        return self.metadata.get("type", "")


def failure_of(error: grpc.aio.AioRpcError) -> Failure:
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            status = status_pb2.Status.FromString(value)
            info = error_details_pb2.ErrorInfo()
            assert status.details[0].Unpack(info)
            assert info.domain == "kruntimes.io"
            return Failure(error.code().name, info.reason, dict(info.metadata))
    return Failure(error.code().name, "", {"message": error.details() or ""})


class Client:
    """executor.v1 as a stranger would speak it."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.stub: Any = rpc.FunctionRuntimeStub(channel)
        self.runtime: Any = rpc.RuntimeStub(channel)
        self.isolation = pb.FUNCTION_ISOLATION_UNSPECIFIED
        self._registered: list[Registered] = []

    async def register(
        self, folder: str | Path, handler: str, *, uid: str | None = None, attempt: int = 1, digest: str = "0" * 64,
        env: dict[str, str] | None = None, expect: int = READY, **more: Any,
    ) -> "Registered":  # fmt: skip
        working_dir = folder if isinstance(folder, Path) else FUNCTIONS / folder
        response = await self.stub.RegisterFunction(
            pb.RegisterFunctionRequest(
                run_uid=uid or f"uid-{next(_uids)}", registration_attempt=attempt, working_dir=str(working_dir),
                handler=handler, env=env or {}, registration_digest=digest, **{"isolation": self.isolation, **more},
            ),
            wait_for_ready=True, timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        function = Registered(self, response)
        self._registered.append(function)
        if response.state != expect:
            raise AssertionError(f"state {response.state}: {(await function.status()).fatal_error}")
        return function

    def forget_all(self) -> None:
        """Of a server that has ended nothing needs to be removed."""
        self._registered.clear()

    async def unregister_all(self) -> None:
        await asyncio.gather(*(function.unregister() for function in self._registered))


class Registered:
    def __init__(self, client: Client, response: pb.RegisterFunctionResponse) -> None:
        self.client = client
        self.functions_socket = response.functions_socket
        self.warning = response.warning
        self.registration = response.registration

    def call(self, event: bytes = b"null", *, content_type: str = "application/json", millis: int = 20_000,
             invocation_id: str = "inv-1") -> Any:  # fmt: skip
        return self.client.stub.InvokeFunction(pb.InvokeFunctionRequest(
            registration=self.registration, invocation_id=invocation_id, input=event, content_type=content_type,
            timeout_millis=millis,
        ))  # fmt: skip

    async def invoke(self, event: bytes = b"null", **more: Any) -> pb.InvokeFunctionResponse:
        return await self.call(event, **more)  # type: ignore[no-any-return]

    async def output(self, event: bytes = b"null", **more: Any) -> bytes:
        return bytes((await self.invoke(event, **more)).output)

    async def fails(self, event: bytes = b"null", **more: Any) -> Failure:
        try:
            response = await self.invoke(event, **more)
        except grpc.aio.AioRpcError as error:
            return failure_of(error)
        raise AssertionError(f"completed with {response.output!r}")

    async def status(self) -> pb.FunctionStatusResponse:
        return await self.client.stub.FunctionStatus(  # type: ignore[no-any-return]
            pb.FunctionStatusRequest(registration=self.registration)
        )

    async def unregister(self, *, cancel: bool = True, drain: int = 0) -> None:
        await self.client.stub.UnregisterFunction(pb.UnregisterFunctionRequest(
            registration=self.registration, cancel_in_flight=cancel, drain_timeout_millis=drain,
        ), timeout=PATIENCE_SECONDS)  # fmt: skip


@contextlib.asynccontextmanager
async def connect(server: Server) -> AsyncIterator[Client]:
    options = [("grpc.max_metadata_size", 32 * 1024)]
    async with grpc.aio.insecure_channel(f"unix:{server.socket}", options=options) as channel:
        client = Client(channel)
        await client.runtime.Health(pb.HealthRequest(), wait_for_ready=True, timeout=PATIENCE_SECONDS)
        yield client
        await client.unregister_all()
