"""Which API server, and with what credential: a kubeconfig or the ServiceAccount of our own Pod.

The client library parses kubeconfigs (contexts, certificates, exec plugins, proxies); only what rotates is
ours (`credentials`). Importing it costs 0.4 s of CPU, so it is imported when a connection is made.
"""

import os
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kruntimes.common.api.settings import SettingsError
from kruntimes.common.kube.credentials import Credential, Fixed, Plugin, TokenFile

_MALFORMED = (AttributeError, KeyError, TypeError, ValueError)
"""What the library raises for a kubeconfig that is YAML and nothing more."""
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


async def load(*, kubeconfig: Path | None, context: str | None) -> tuple[Any, Credential]:
    """Returns the library's Configuration and the credential to act with.

    Source: *kubeconfig*, else $KUBECONFIG, else the Pod's ServiceAccount. Raises SettingsError with a sentence.
    """
    import yaml
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config import ConfigException

    configuration = Configuration()
    files = str(kubeconfig) if kubeconfig is not None else os.environ.get("KUBECONFIG", "")
    try:
        if files:
            credential = await _from_kubeconfig(configuration, files, context)
        else:
            credential = _in_cluster(configuration)
    except (ConfigException, yaml.YAMLError, OSError, AssertionError, *_MALFORMED) as error:
        where = f"kubeconfig {files}" if files else "no KUBECONFIG, and not in a Pod"
        raise SettingsError(f"{where}: {error or type(error).__name__}") from error
    if configuration.proxy is None:
        configuration.proxy = _proxy(str(configuration.host))
    return configuration, credential


async def _from_kubeconfig(configuration: Any, files: str, context: str | None) -> Credential:
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader, KubeConfigMerger

    merged: Any = KubeConfigMerger(files).config
    if merged is None:
        raise ValueError("no such file")
    loader = KubeConfigLoader(config_dict=merged, config_base_path=None, active_context=context)
    await loader.load_and_set(configuration)
    user_name = (loader.current_context or {}).get("context", {}).get("user")
    node: Any = merged["users"].get_with_name(user_name, safe=True) if user_name else None
    user: dict[str, Any] = (node.value.get("user") if node is not None else None) or {}
    if "tokenFile" in user:
        return TokenFile(Path(node.path or files).parent / user["tokenFile"])
    header = configuration.api_key.get("BearerToken")
    if "exec" in user or "auth-provider" in user:

        async def renew() -> str | None:
            await loader.load_and_set(configuration)
            value: str | None = configuration.api_key.get("BearerToken")
            return value

        return Plugin(header, renew)
    return Fixed(header)


def _in_cluster(configuration: Any) -> Credential:
    from kubernetes_asyncio.config import load_incluster_config

    token = SERVICE_ACCOUNT / "token"
    load_incluster_config(  # type: ignore[no-untyped-call]
        configuration,
        try_refresh_token=False,
        token_filename=str(token),
        cert_filename=str(SERVICE_ACCOUNT / "ca.crt"),
    )
    return TokenFile(token)


def _proxy(host: str) -> str | None:
    """The proxy that HTTPS_PROXY and NO_PROXY mean for *host*, as other Kubernetes clients read them."""
    parts = urlsplit(host)
    if not parts.hostname or urllib.request.proxy_bypass(parts.hostname):
        return None
    return urllib.request.getproxies().get(parts.scheme)
