"""A closed-loop HTTP/1.1 load generator over TLS, and the table that every benchmark prints.

Raw asyncio protocols on uvloop: a client library would cost more than what is measured. One request is in flight
for each connection; latencies are seconds.
"""

import asyncio
import json
import os
import ssl
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

RESULTS = Path(__file__).parent / "results"
QUICK = bool(os.environ.get("QUICK"))
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Load:
    """What one run of the generator saw."""

    seconds: float
    latencies: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        """Answers per second."""
        return len(self.latencies) / self.seconds

    def quantile(self, q: float) -> float:
        """The *q* quantile of the latencies, in seconds."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


class _Connection(asyncio.Protocol):
    """Sends one request again and again; reads answers that carry a Content-Length."""

    def __init__(self, request: bytes, load: Load, end: float) -> None:
        self.request, self.load, self.end = request, load, end
        self.buffer, self.began = b"", 0.0
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's TLS transports are not of the class
        self._send()

    def _send(self) -> None:
        self.began = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        lowered = self.buffer[:head].lower()
        at = lowered.find(b"content-length:")
        length = int(lowered[at + 15 :].split(b"\r", 1)[0]) if at >= 0 else 0
        if len(self.buffer) < head + 4 + length:
            return
        now = time.perf_counter()
        self.load.latencies.append(now - self.began)
        self.load.statuses[int(self.buffer[9:12])] += 1
        self.buffer = b""
        if now >= self.end:
            self.transport.close()
            if not self.finished.done():
                self.finished.set_result(None)
        else:
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.finished.done():
            self.finished.set_exception(ConnectionError(f"the connection ended under load: {exc}"))


def post(path: str, *, host: str, body: bytes, headers: dict[str, str]) -> bytes:
    """The bytes of one POST request."""
    fields = {"host": host, "content-length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


async def drive(host: str, port: int, tls: ssl.SSLContext | None, requests: Sequence[bytes], seconds: float) -> Load:
    """Opens one connection for each request in *requests* and repeats it until *seconds* have passed."""
    loop = asyncio.get_running_loop()
    load = Load(seconds)
    began = time.perf_counter()
    made = [
        await loop.create_connection(
            lambda request=request: _Connection(request, load, began + seconds),  # type: ignore[misc]
            host,
            port,
            ssl=tls,
            server_hostname=host if tls else None,
        )
        for request in requests
    ]
    await asyncio.wait_for(asyncio.gather(*(protocol.finished for _, protocol in made)), seconds + 120)
    load.seconds = time.perf_counter() - began
    return load


def cpu_seconds(pid: int) -> float:
    """User and system time of one process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def switches(pid: int) -> tuple[int, int]:
    """Context switches of one process so far, over all its threads: those it made by waiting, and those forced on it."""
    waited = forced = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            status = (task / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        counts = dict(line.split(":", 1) for line in status.splitlines() if "ctxt_switches" in line)
        waited += int(counts["voluntary_ctxt_switches"])
        forced += int(counts["nonvoluntary_ctxt_switches"])
    return waited, forced


def descendants(pid: int) -> dict[int, str]:
    """Every process below *pid*, with its name and its command line."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found: dict[int, str] = {}
    todo = list(parents.get(pid, []))
    while todo:
        child = todo.pop()
        try:
            line = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found[child] = Path(f"/proc/{child}/comm").read_text().strip() + " " + line
        except (FileNotFoundError, ProcessLookupError):
            continue
        todo += parents.get(child, [])
    return found


@dataclass(frozen=True)
class Row:
    """One figure; ratio is value over anchor, holds whether the aim is met."""

    what: str
    value: float
    unit: str
    anchor: str | None = None
    ratio: float | None = None
    aim: str | None = None
    holds: bool | None = None


def report(name: str, rows: Sequence[Row]) -> None:
    """Prints the table and writes `bench/results/NAME.json`."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps([vars(row) for row in rows], indent=1) + "\n")
    print(f"| {'what':58} | {'value':>10} | unit | ratio | aim |\n| --- | --- | --- | --- | --- |")
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}× {row.anchor}"
        aim = "" if row.aim is None else f"{row.aim} {'holds' if row.holds else 'DOES NOT HOLD'}"
        print(f"| {row.what:58} | {row.value:10.1f} | {row.unit} | {ratio} | {aim} |")


def median(loads: Sequence[Load], q: float) -> float:
    """The median over several runs of their *q* quantile, in seconds."""
    return statistics.median(load.quantile(q) for load in loads)
