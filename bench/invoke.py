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
from pathlib import Path

import httpx
from load import QUICK, Load, Row, cpu_seconds, descendants, drive, median, post, report

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from support import Api, Gateway, path_of  # noqa: E402

FUNCTIONS = 32
ROUNDS = 2 if QUICK else 5
SECONDS = 2.0 if QUICK else 4.0
BODY = b'{"name": "' + b"x" * 110 + b'"}'
SOURCE = "def handler(event):\n    return {'length': len(event['name'])}\n"
AIM_P50 = 5.5

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


PARTS = {
    "kr-python-host": "host processes",
    "kruntimes.authz": "authz",
    "kruntimes.runtimed": "runtimed",
    "kruntimes.router": "router",
    "kruntimes.controller": "operator",
    "kruntimes.local.apiserver": "control plane",
    "kruntimes.runtime ": "Runtime Server",
    "bin/envoy": "Envoy",
}
"""What a process's name and command line say it is; the first that is found counts."""


def part_of(command: str) -> str:
    """Which part of the path a process is; the shims of the local node count as `krt dev`."""
    if "shim.py" in command:
        return "krt dev"
    return next((part for name, part in PARTS.items() if name in command), "krt dev")


def cpu_by_part(pids: dict[int, str]) -> dict[str, float]:
    """CPU seconds so far of each part; the load generator and the anchors are none."""
    used: dict[str, float] = {}
    mine = {os.getpid(), *descendants(os.getpid())}
    for pid, command in pids.items():
        if pid in mine:
            continue
        part = part_of(command)
        try:
            used[part] = used.get(part, 0.0) + cpu_seconds(pid)
        except FileNotFoundError:
            continue
    return used


async def measure(gateway: Gateway, runs: list[dict[str, object]], anchors: Anchors, krt: int) -> list[Row]:
    """Drives the three in turns and returns the rows of the table."""
    host, port = gateway.url.removeprefix("https://").split(":")
    tls = ssl.create_default_context(cafile=gateway.ca)
    calls = [post(path_of(run), host=host, body=BODY, headers=gateway.headers()) for run in runs]
    bare = post("/", host="127.0.0.1", body=BODY, headers=gateway.headers())
    kinds = {
        "Envoy TLS direct_response": ("127.0.0.1", anchors.direct, anchors.tls, [bare], [bare] * FUNCTIONS),
        "Envoy TLS → bare aiohttp": ("127.0.0.1", anchors.proxied, anchors.tls, [bare], [bare] * FUNCTIONS),
        "whole path": (host, int(port), tls, calls[:1], calls),
    }
    for h, p, t, _, many in kinds.values():
        await drive(h, p, t, many, 1.0)
    one: dict[str, list[Load]] = {name: [] for name in kinds}
    many_at_once: dict[str, list[Load]] = {name: [] for name in kinds}
    used: dict[str, float] = {}
    answered = 0
    for _ in range(ROUNDS):
        for name, (h, p, t, single, many) in kinds.items():
            one[name].append(await drive(h, p, t, single, SECONDS))
            before = cpu_by_part(descendants(krt))
            load = await drive(h, p, t, many, SECONDS)
            many_at_once[name].append(load)
            if name == "whole path":
                for part, seconds in cpu_by_part(descendants(krt)).items():
                    used[part] = used.get(part, 0.0) + seconds - before.get(part, 0.0)
                answered += len(load.latencies)
    for name in kinds:
        seen = sum((load.statuses for load in one[name] + many_at_once[name]), start=one[name][0].statuses.__class__())
        if set(seen) != {200}:
            raise SystemExit(f"{name}: not every answer was 200: {dict(seen)}")
    anchor = "Envoy TLS → bare aiohttp"
    rows = []
    for name in kinds:
        ratio = None if name == anchor else median(one[name], 0.5) / median(one[anchor], 0.5)
        whole = name == "whole path"
        rows.append(
            Row(
                f"{name}, c=1 p50",
                median(one[name], 0.5) * 1e6,
                "µs",
                anchor,
                ratio,
                f"≤{AIM_P50}×" if whole else None,
                bool(ratio and ratio <= AIM_P50) if whole else None,
            )
        )
        rows.append(Row(f"{name}, c=1 p99", median(one[name], 0.99) * 1e6, "µs"))
        rate = statistics.median(load.rate for load in many_at_once[name])
        other = statistics.median(load.rate for load in many_at_once[anchor])
        rows.append(Row(f"{name}, c={FUNCTIONS}", rate, "requests/s", anchor, None if name == anchor else rate / other))
    for part, seconds in sorted(used.items(), key=lambda item: -item[1]):
        rows.append(Row(f"whole path, c={FUNCTIONS}: CPU of {part}", seconds / answered * 1e6, "µs/request"))
    rows.append(Row(f"whole path, c={FUNCTIONS}: CPU of all", sum(used.values()) / answered * 1e6, "µs/request"))
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
