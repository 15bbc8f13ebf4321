"""What a control plane holds before anyone writes: namespaces, its own Service, the CA of client certificates. Pure."""

from collections.abc import Iterator
from typing import Any

from kruntimes.local.apiserver import rbac_bootstrap

Json = dict[str, Any]

NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


def objects(*, client_ca: str, port: int) -> Iterator[tuple[tuple[str, str, str], str, Json]]:
    """(group, version, plural), namespace and object, in the order in which they are created."""
    for name in NAMESPACES:
        yield ("", "v1", "namespaces"), "", {"metadata": {"name": name}}
    yield from rbac_bootstrap.objects()
    yield (
        ("", "v1", "configmaps"),
        "kube-system",
        {
            "metadata": {"name": "extension-apiserver-authentication"},
            "data": {"client-ca-file": client_ca},
        },
    )
    yield (
        ("", "v1", "services"),
        "default",
        {
            "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]},
        },
    )
