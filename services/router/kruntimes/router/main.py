"""The router's process: settings, certificate, informers, the discovery service, health (design §2, §8, §13)."""

import asyncio
import logging

from kruntimes.common.api.names import ADS_PORT, GROUP, METRICS_PORT, ROUTER_DNS, Role, pod_dns, spiffe_id
from kruntimes.common.api.settings import Settings
from kruntimes.common.identity import Peer
from kruntimes.common.kube.csr import CertificateNames
from kruntimes.common.kube.transport import Kube
from kruntimes.common.metrics import Health, new_registry, serve
from kruntimes.common.service import main as service_main
from kruntimes.common.tls import Workload
from kruntimes.router.ads import STOP_SECONDS, Publisher, new_server
from kruntimes.router.cluster import Secrets
from kruntimes.router.compile import Options
from kruntimes.router.informers import Informers
from kruntimes.router.metrics import Metrics

log = logging.getLogger(__name__)

SIGNER = f"{GROUP}/router"


def certificate_names(settings: Settings) -> CertificateNames:
    """The names in the router's certificate: who it is, this Pod, and the service that Envoys expect."""
    identity = spiffe_id(
        trust_domain=settings.trust_domain,
        namespace=settings.namespace,
        role=Role.ROUTER,
        owner=settings.instance,
        pod_uid=settings.pod_uid,
    )
    return CertificateNames(uris=(identity,), dns=(pod_dns(pod_uid=settings.pod_uid, role=Role.ROUTER), ROUTER_DNS))


def may_have_routes(peer: Peer | None, settings: Settings) -> bool:
    """Whether *peer* is a gateway of this installation's trust domain."""
    return peer is not None and peer.role is Role.GATEWAY and peer.trust_domain == settings.trust_domain


def options_of(settings: Settings) -> Options:
    """What the settings say about the resources to publish."""
    folder = settings.gateway_dir
    secrets = Secrets(
        certificate_path=str(folder / "client.yaml"),
        certificate_name="client",
        ca_path=str(folder / "ca.yaml"),
        ca_name="ca",
    )
    return Options(max_timeout=settings.max_timeout, secrets=secrets)


async def run(settings: Settings) -> None:
    """Serves until cancelled."""
    settings.require("namespace", "pod_uid", "ca_file")
    assert settings.ca_file is not None
    registry = new_registry()
    metrics = Metrics(registry)
    publisher = Publisher(allowed=lambda peer: may_have_routes(peer, settings), metrics=metrics)
    kube = await Kube.connect()
    try:
        informers = Informers(kube, options=options_of(settings), publisher=publisher, metrics=metrics)
        listening = asyncio.Event()
        health = Health(live=lambda: True, ready=lambda: publisher.serving and listening.is_set())
        web = await serve(registry, health, settings.bind_address, METRICS_PORT)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(informers.run())
                await _serve_routes(settings, kube, publisher, group, listening)
        finally:
            await web.cleanup()
    finally:
        await kube.close()


async def _serve_routes(
    settings: Settings, kube: Kube, publisher: Publisher, group: asyncio.TaskGroup, listening: asyncio.Event
) -> None:
    """Obtains the certificate while the informers sync, then serves until cancelled; says so by *listening*."""
    assert settings.ca_file is not None
    names = certificate_names(settings)
    workload = await Workload.obtain(kube, signer=SIGNER, names=names, ca_file=settings.ca_file)
    group.create_task(workload.run())
    server = new_server(publisher)
    host = f"[{settings.bind_address}]" if ":" in settings.bind_address else settings.bind_address
    server.add_secure_port(f"{host}:{ADS_PORT}", workload.grpc_server_credentials())
    await server.start()
    listening.set()
    log.info("serving routes", extra={"port": ADS_PORT})
    try:
        await server.wait_for_termination()
    finally:
        await server.stop(STOP_SECONDS)


def main() -> None:
    """Entry point of `python -m kruntimes.router`."""
    service_main("router", run)
