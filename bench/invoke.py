"""What an invocation costs through the whole path, against Envoy alone and against Envoy with a bare upstream.

All three stand behind the same TLS front (Envoy, concurrency 1, one core's worth of it) on the same machine in the
same run, in turns, so that a machine that slows down slows them all. The control plane is the one of `krt dev`, or
the one that KUBECONFIG names; it takes no part in a call.
"""

import os
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
from load import QUICK, Load, Row, cpu_seconds, descendants, drive, median, post, report, switches

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from support import Api, Gateway, path_of  # noqa: E402

FUNCTIONS = 32
ROUNDS = 2 if QUICK else 5
SECONDS = 2.0 if QUICK else 4.0
BODY = b'{"name": "' + b"x" * 110 + b'"}'
SOURCE = "def handler(event):\n    return {'length': len(event['name'])}\n"
AIM_P50 = 5.5
ANCHOR, WHOLE = "Envoy TLS → bare aiohttp", "whole path"
STEPS = {
    "to Envoy: no such path": 404,
    "to authz: no token": 401,
    "to runtimed: nothing to cancel": 404,
}
"""How far a request comes that is answered early, and with which status: what each hop adds, of the same gateway. The
cancellation takes the fallback route and, in runtimed, a task, which a warm call does not."""

ANCHORS = """
static_resources:
  listeners:
{listeners}
  clusters:
  - name: bare
    type: STATIC
    connect_timeout: 1s
    load_assignment:
      cluster_name: bare
      endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {bare}}}}}}}}}]}}]
"""
LISTENER = """
  - name: {name}
    address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          common_tls_context:
            tls_certificates: [{{certificate_chain: {{filename: {folder}/tls.crt}}, private_key: {{filename: {folder}/tls.key}}}}]
      filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: {name}
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{{match: {{prefix: /}}, {action}}}]
          http_filters:
          - name: envoy.filters.http.buffer
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: 1048576}}
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
"""
UPSTREAM = """
import asyncio, sys, uvloop
from aiohttp import web

async def main():
    async def answer(request):
        await request.read()
        return web.json_response({"length": 110})
    runner = web.ServerRunner(web.Server(answer), keepalive_timeout=3600)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", int(sys.argv[1]))
    await site.start()
    await asyncio.Event().wait()

uvloop.run(main())
"""


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class Anchors:
    """Envoy with a direct_response and with a bare aiohttp upstream, each behind TLS."""

    def __init__(self, folder: Path, envoy: str) -> None:
        self.direct, self.proxied, bare = free_port(), free_port(), free_port()
        subprocess.run(
            [
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-days",
                "1",
                "-subj",
                "/CN=127.0.0.1",
                "-addext",
                "subjectAltName=IP:127.0.0.1",
                "-keyout",
                folder / "tls.key",
                "-out",
                folder / "tls.crt",
            ],
            check=True,
            capture_output=True,
        )
        actions = [
            ("direct", self.direct, "direct_response: {status: 200, body: {inline_string: ok}}"),
            ("proxied", self.proxied, "route: {cluster: bare}"),
        ]
        listeners = "".join(LISTENER.format(name=n, port=p, action=a, folder=folder) for n, p, a in actions)
        (folder / "envoy.yaml").write_text(ANCHORS.format(listeners=listeners, bare=bare))
        self.tls = ssl.create_default_context(cafile=folder / "tls.crt")
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.processes = {
            "upstream": subprocess.Popen([sys.executable, "-c", UPSTREAM, str(bare)], **quiet),  # type: ignore[call-overload]
            "envoy": subprocess.Popen(  # type: ignore[call-overload]
                [envoy, "-c", folder / "envoy.yaml", "--concurrency", "1", "--disable-hot-restart"], **quiet
            ),
        }
        for port in (self.direct, self.proxied):
            self._wait(port)

    def _wait(self, port: int) -> None:
        end = time.monotonic() + 30
        while True:
            try:
                if httpx.post(f"https://127.0.0.1:{port}/", verify=self.tls, trust_env=False).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            if time.monotonic() > end:
                raise SystemExit("the anchors did not start within 30 s")
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends both processes."""
        for process in self.processes.values():
            process.terminate()
            process.wait(10)


REST = "everything else"
PARTS = {
    "kr-python-host": "host processes",
    "kruntimes.authz": "authz",
    "kruntimes.runtimed": "runtimed",
    "kruntimes.runtime ": "Runtime Server",
    "bin/envoy": "Envoy",
}
"""What a process's name and command line say it is; the first that is found counts."""


def part_of(command: str) -> str:
    """Which part of the path a process is; the shims of the local node are none."""
    if "shim.py" in command:
        return REST
    return next((part for name, part in PARTS.items() if name in command), REST)


@dataclass(frozen=True)
class Used:
    """What a part has used so far. waits: switches because it had nothing to do; each ends in a wake-up."""

    seconds: float = 0.0
    waits: int = 0
    forced: int = 0

    def __add__(self, other: "Used") -> "Used":
        return Used(self.seconds + other.seconds, self.waits + other.waits, self.forced + other.forced)

    def __sub__(self, other: "Used") -> "Used":
        return Used(self.seconds - other.seconds, self.waits - other.waits, self.forced - other.forced)


def used_by_part(pids: dict[int, str]) -> dict[str, Used]:
    """What each part has used so far; the load generator and the anchors are none."""
    used: dict[str, Used] = {}
    mine = {os.getpid(), *descendants(os.getpid())}
    for pid, command in pids.items():
        if pid in mine:
            continue
        part = part_of(command)
        try:
            used[part] = used.get(part, Used()) + Used(cpu_seconds(pid), *switches(pid))
        except FileNotFoundError:
            continue
    return used


class Meter:
    """Adds up what the parts use while the whole path is driven."""

    def __init__(self, krt: int) -> None:
        self._krt = krt
        self._used: dict[str, Used] = {}
        self._answered = 0

    async def drive(self, host: str, port: int, tls: ssl.SSLContext, requests: list[bytes]) -> Load:
        """As `load.drive`."""
        before = used_by_part(descendants(self._krt))
        load = await drive(host, port, tls, requests, SECONDS)
        for part, used in used_by_part(descendants(self._krt)).items():
            self._used[part] = self._used.get(part, Used()) + used - before.get(part, Used())
        self._answered += len(load.latencies)
        return load

    def rows(self, what: str) -> list[Row]:
        """CPU and switches of each part and of all, for each request."""
        total = sum(self._used.values(), start=Used())
        rows = []
        for part, used in [*sorted(self._used.items(), key=lambda item: -item[1].seconds), ("all", total)]:
            rows.append(Row(f"{what}: CPU of {part}", used.seconds / self._answered * 1e6, "µs/request"))
            rows.append(Row(f"{what}: waits of {part}", used.waits / self._answered, "switches/request"))
            rows.append(Row(f"{what}: forced switches of {part}", used.forced / self._answered, "switches/request"))
        return rows


def steps(path: str, *, host: str, headers: dict[str, str]) -> dict[str, bytes]:
    """The requests of STEPS, none of which has a body."""
    cancel = path.removesuffix(":invoke") + "/invocations/none:cancel"
    sent = (("/nowhere", headers), (path, {}), (cancel, headers))
    return {
        name: post(target, host=host, body=b"", headers=carried)
        for name, (target, carried) in zip(STEPS, sent, strict=True)
    }


async def measure(gateway: Gateway, runs: list[dict[str, object]], anchors: Anchors, krt: int) -> list[Row]:
    """Drives the three in turns and returns the rows of the table."""
    host, port = gateway.url.removeprefix("https://").split(":")
    tls = ssl.create_default_context(cafile=gateway.ca)
    calls = [post(path_of(run), host=host, body=BODY, headers=gateway.headers()) for run in runs]
    bare = post("/", host="127.0.0.1", body=BODY, headers=gateway.headers())
    kinds = {
        "Envoy TLS direct_response": ("127.0.0.1", anchors.direct, anchors.tls, [bare], [bare] * FUNCTIONS),
        ANCHOR: ("127.0.0.1", anchors.proxied, anchors.tls, [bare], [bare] * FUNCTIONS),
        WHOLE: (host, int(port), tls, calls[:1], calls),
    }
    for h, p, t, _, many in kinds.values():
        await drive(h, p, t, many, 1.0)
    one: dict[str, list[Load]] = {name: [] for name in kinds}
    many_at_once: dict[str, list[Load]] = {name: [] for name in kinds}
    alone, together = Meter(krt), Meter(krt)
    early = steps(path_of(runs[0]), host=host, headers=gateway.headers())
    stopped: dict[str, list[Load]] = {name: [] for name in STEPS}
    for _ in range(ROUNDS):
        for name, (h, p, t, single, many) in kinds.items():
            if name == WHOLE:
                one[name].append(await alone.drive(h, p, t, single))
                many_at_once[name].append(await together.drive(h, p, t, many))
            else:
                one[name].append(await drive(h, p, t, single, SECONDS))
                many_at_once[name].append(await drive(h, p, t, many, SECONDS))
        for name, request in early.items():
            stopped[name].append(await drive(host, int(port), tls, [request], SECONDS / 2))
    for name, status in STEPS.items():
        if any(set(load.statuses) != {status} for load in stopped[name]):
            raise SystemExit(f"{name}: not every answer was {status}: {dict(stopped[name][0].statuses)}")
    for name in kinds:
        seen = sum((load.statuses for load in one[name] + many_at_once[name]), start=one[name][0].statuses.__class__())
        if set(seen) != {200}:
            raise SystemExit(f"{name}: not every answer was 200: {dict(seen)}")
    ladder = [Row(f"{name}, c=1 p50", median(loads, 0.5) * 1e6, "µs") for name, loads in stopped.items()]
    return [
        *latencies(one, many_at_once),
        *ladder,
        *alone.rows(f"{WHOLE}, c=1"),
        *together.rows(f"{WHOLE}, c={FUNCTIONS}"),
    ]


def latencies(one: dict[str, list[Load]], many_at_once: dict[str, list[Load]]) -> list[Row]:
    """The rows of times and rates. A ratio is the median of the ratios within a round: a machine's mood is in both."""
    rows = []
    for name in one:
        is_anchor, is_whole = name == ANCHOR, name == WHOLE
        pairs = zip(one[name], one[ANCHOR], strict=True)
        ratio = (
            None if is_anchor else statistics.median(own.quantile(0.5) / other.quantile(0.5) for own, other in pairs)
        )
        rows.append(
            Row(
                f"{name}, c=1 p50",
                median(one[name], 0.5) * 1e6,
                "µs",
                ANCHOR,
                ratio,
                f"≤{AIM_P50}×" if is_whole else None,
                bool(ratio and ratio <= AIM_P50) if is_whole else None,
            )
        )
        rows.append(Row(f"{name}, c=1 p99", median(one[name], 0.99) * 1e6, "µs"))
        rate = statistics.median(load.rate for load in many_at_once[name])
        other = statistics.median(load.rate for load in many_at_once[ANCHOR])
        rows.append(Row(f"{name}, c={FUNCTIONS}", rate, "requests/s", ANCHOR, None if is_anchor else rate / other))
    return rows


def inside() -> None:
    """Runs as COMMAND of `krt dev`, with the stack in the environment."""
    gateway = Gateway(os.environ["KRT_GATEWAY"], Path(os.environ["KRT_CACERT"]), os.environ["KRT_TOKEN"])
    with Api(Path(os.environ["KUBECONFIG"])) as api, tempfile.TemporaryDirectory() as folder:
        names = [f"bench-{os.getpid()}-{i}" for i in range(FUNCTIONS)]
        try:
            for name in names:
                api.declare(name, SOURCE, handler="bench.handler", runtime="bench")
            runs = [api.ready(name, seconds=120) for name in names]
            anchors = Anchors(Path(folder), os.environ["BENCH_ENVOY"])
            try:
                import uvloop

                rows = uvloop.run(measure(gateway, runs, anchors, os.getppid()))
            finally:
                anchors.stop()
        finally:
            for name in names:
                api.delete(name)
        report("invoke", rows)


def main() -> int:
    """Starts `krt dev` with a Runtime of 64 units and runs the measurement in it."""
    import envoy

    binary = str(Path(next(iter(envoy.__path__))) / "_bin" / "envoy")
    environment = {**os.environ, "BENCH_ENVOY": binary}
    print(
        f"# Python {sys.version.split()[0]} ({os.path.realpath(sys.executable)}), {os.cpu_count()} cores, "
        f"{ROUNDS} rounds of {SECONDS:.0f} s",
        flush=True,
    )
    krt = Path(sys.executable).with_name("krt")
    given = os.environ.get("KUBECONFIG")
    control_plane = ["--control-plane", given] if given else []
    with subprocess.Popen(
        [krt, "dev", *control_plane, str(HERE / "runtimes"), "--", sys.executable, __file__, "--inside"],
        env=environment,
    ) as process:
        try:
            return process.wait(900)
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            process.send_signal(signal.SIGINT)
            return process.wait(60) or 1


if __name__ == "__main__":
    if "--inside" in sys.argv:
        inside()
    else:
        sys.exit(main())
