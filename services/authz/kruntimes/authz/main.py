"""authz's process: certificates and bootstrap for Envoy, the index, the service on its socket (design §2, §8, §13)."""

import asyncio
import ipaddress
import logging

from aiohttp import web

from kruntimes.authz.decide import Policy
from kruntimes.authz.drain import Drain
from kruntimes.authz.files import (
    ADMIN_SOCKET,
    AUTHZ_SOCKET,
    Bootstrap,
    GatewayFiles,
    check,
    check_serving,
    host_and_port,
)
from kruntimes.authz.index import Index
from kruntimes.authz.metrics import Metrics
from kruntimes.authz.server import Authorizer, serve
from kruntimes.common.access import Access
from kruntimes.common.api.names import ADS_PORT, GROUP, METRICS_PORT, SERVING_SIGNER, Role, pod_dns, spiffe_id
from kruntimes.common.api.settings import Settings, SettingsError
from kruntimes.common.kube.csr import CertificateNames
from kruntimes.common.kube.transport import Kube
from kruntimes.common.metrics import Health, new_registry
from kruntimes.common.metrics import serve as serve_metrics
from kruntimes.common.service import main as service_main
from kruntimes.common.tls import Workload

log = logging.getLogger(__name__)

SIGNER = f"{GROUP}/gateway"


def client_names(settings: Settings) -> CertificateNames:
    """The names in the certificate that Envoy shows to Pods and to the router."""
    identity = spiffe_id(
        trust_domain=settings.trust_domain,
        namespace=settings.namespace,
        role=Role.GATEWAY,
        owner=settings.instance,
        pod_uid=settings.pod_uid,
    )
    return CertificateNames(uris=(identity,), dns=(pod_dns(pod_uid=settings.pod_uid, role=Role.GATEWAY),))


def serving_names(settings: Settings) -> CertificateNames:
    """The names in the certificate that callers see: those of the installation's setting, and no others."""
    ips = tuple(name for name in settings.gateway_names if _is_ip(name))
    return CertificateNames(dns=tuple(name for name in settings.gateway_names if name not in ips), ips=ips)


def bootstrap_of(settings: Settings) -> Bootstrap:
    """What the settings say of Envoy; raises SettingsError."""
    try:
        host, port = host_and_port(settings.ads_address, default_port=ADS_PORT)
        bootstrap = Bootstrap(
            bind_address=settings.bind_address,
            gateway_port=settings.gateway_bind_port,
            ads_host=host,
            ads_port=port,
            max_timeout=settings.max_timeout,
        )
        check(settings.gateway_dir, bootstrap)
    except ValueError as error:
        raise SettingsError(f"KRUNTIMES_ADS_ADDRESS, _BIND_ADDRESS or _GATEWAY_DIR: {error}") from None
    if settings.serving_dir is not None:
        try:
            check_serving(settings.serving_dir)
        except ValueError as error:
            raise SettingsError(f"KRUNTIMES_SERVING_DIR: {error}") from None
    return bootstrap


def policy_of(settings: Settings) -> Policy:
    """What the settings say about who may invoke."""
    return Policy(
        verb=settings.authz_verb,
        group=settings.authz_group,
        resource=settings.authz_resource,
        subresource=settings.authz_subresource,
        default_timeout=settings.default_timeout,
        max_timeout=settings.max_timeout,
    )


async def run(settings: Settings) -> None:
    """Serves until cancelled."""
    settings.require("namespace", "pod_name", "pod_uid", "ca_file", "ads_address")
    if settings.serving_dir is None:
        settings.require("gateway_names")
    bootstrap = bootstrap_of(settings)
    folder = settings.gateway_dir
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    registry = new_registry()
    metrics = Metrics(registry)
    kube = await Kube.connect()
    try:
        index = Index(kube)
        metrics.watch_index(index)
        written = asyncio.Event()
        drain = Drain(
            kube,
            namespace=settings.namespace,
            pod_name=settings.pod_name,
            pod_uid=settings.pod_uid,
            admin=folder / ADMIN_SOCKET,
            longest=settings.max_timeout,
        )
        health = Health(live=written.is_set, ready=lambda: index.synced and written.is_set())
        routes = [web.get("/drain", drain.handle)]
        web_runner = await serve_metrics(registry, health, settings.bind_address, METRICS_PORT, routes)
        try:
            async with asyncio.TaskGroup() as group:
                access = Access(kube, tasks=group, count=metrics.reviewed)
                authorizer = Authorizer(index=index, access=access, policy=policy_of(settings), metrics=metrics)
                group.create_task(index.run())
                group.create_task(_keep_files(settings, kube, bootstrap, written))
                group.create_task(_serve(authorizer, settings))
        finally:
            await web_runner.cleanup()
    finally:
        await kube.close()


async def _serve(authorizer: Authorizer, settings: Settings) -> None:
    """Answers checks until cancelled."""
    runner = await serve(authorizer, settings.gateway_dir / AUTHZ_SOCKET)
    try:
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


async def _keep_files(settings: Settings, kube: Kube, bootstrap: Bootstrap, written: asyncio.Event) -> None:
    """Obtains the certificates, writes everything that Envoy reads, and writes again what is renewed."""
    assert settings.ca_file is not None
    files = GatewayFiles(settings.gateway_dir)
    wanted = {SIGNER: client_names(settings)}
    if settings.serving_dir is None:
        wanted[SERVING_SIGNER] = serving_names(settings)
    async with asyncio.TaskGroup() as group:
        asked = {
            signer: group.create_task(Workload.obtain(kube, signer=signer, names=names, ca_file=settings.ca_file))
            for signer, names in wanted.items()
        }
    workloads = {signer: task.result() for signer, task in asked.items()}
    client, serving = workloads[SIGNER], workloads.get(SERVING_SIGNER)

    def write() -> None:
        held = None if serving is None else serving.certificate
        files.write_certificates(client=client.certificate, serving=held, ca_pem=client.ca_pem)

    write()
    files.write_bootstrap(bootstrap, serving_dir=settings.serving_dir)
    written.set()
    log.info("envoy may start")
    async with asyncio.TaskGroup() as group:
        for workload in workloads.values():
            workload.on_change(write)
            group.create_task(workload.run())


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def main() -> None:
    """Entry point of `python -m kruntimes.authz`."""
    service_main("authz", run)
