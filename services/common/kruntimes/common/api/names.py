"""Names that more than one part must agree on: the API group, labels, signers, identities, paths.

Source: design §4, §6, §8 and §13.
"""

import functools
import re
from enum import StrEnum
from urllib.parse import quote, unquote

import msgspec

from kruntimes.common.api.outcomes import MAX_INVOCATION_ID_BYTES, valid_invocation_id

GROUP = "kruntimes.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
RUNS = "runs"
RUNTIMES = "runtimes"

FINALIZER = f"{GROUP}/registration-cleanup"
RUNTIME_LABEL = "runtime"
TEMPLATE_HASH_LABEL = f"{GROUP}/template-hash"
CAPACITY_ANNOTATION = f"{GROUP}/capacity."
NAME_LABEL = f"{GROUP}/dev-name"
"""On a Run that has taken the place of another: the name under which people know both (`krt` follows it)."""
POD_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
READINESS_GATE = f"{GROUP}/RuntimedReady"
RUNTIMED_SERVICE_ACCOUNT = "kruntimes-runtimed"
RUNTIMED_ROLE = "kruntimes-runtimed"
"""The ClusterRole that the operator binds, in each namespace with a Runtime, to its Pods' ServiceAccounts."""
CSR_ROLE = "kruntimes-csr"
"""The ClusterRole for asking for a certificate: requests are cluster-scoped, so it is bound cluster-wide."""
CA_NAME = "kruntimes-ca"
"""Name of the Secret with the CA's key (operator's namespace) and of the ConfigMap with its bundle (everywhere)."""
CA_BUNDLE_KEY = "ca.crt"
GATEWAY_BUNDLE_KEY = "gateway.crt"
"""In the same ConfigMap: whom callers of the gateway must trust, where its certificate comes from somebody else."""

POD_NAME_EXTRA = "authentication.kubernetes.io/pod-name"
POD_UID_EXTRA = "authentication.kubernetes.io/pod-uid"
"""Keys of CertificateSigningRequest.spec.extra that the API server writes for a Pod-bound token."""

INTERNAL_DOMAIN = "kruntimes.internal"
ROUTER_DNS = f"router.{INTERNAL_DOMAIN}"
"""The DNS SAN that every router carries beside its Pod's own, and that Envoy demands of whoever serves its routes."""

INVOKE_PORT = 9443
PEER_PORT = 9444
METRICS_PORT = 9090
RUNTIME_METRICS_PORT = 9092
GATEWAY_PORT = 8443
ENVOY_STATS_PORT = 9901
ADS_PORT = 18000
RUNTIME_SERVER_PORT = 9091


class Role(StrEnum):
    """A workload that carries a certificate; the role in a certificate's name decides who may call what."""

    RUNTIMED = "runtimed"
    GATEWAY = "gateway"
    ROUTER = "router"


SIGNERS: dict[str, Role] = {
    f"{GROUP}/runtimed": Role.RUNTIMED,
    f"{GROUP}/gateway": Role.GATEWAY,
    f"{GROUP}/router": Role.ROUTER,
}
SERVING_SIGNER = f"{GROUP}/gateway-serving"


def spiffe_id(*, trust_domain: str, namespace: str, role: Role, owner: str, pod_uid: str) -> str:
    """The URI SAN of a workload; *owner* is the Runtime's or the release's name."""
    return f"spiffe://{trust_domain}/ns/{namespace}/{role.value}/{owner}/pod/{pod_uid}"


def pod_dns(*, pod_uid: str, role: Role) -> str:
    """The DNS SAN of one Pod in one role, which Envoy and peers demand of whoever answers."""
    return f"{pod_uid}.{role.value}.{INTERNAL_DOMAIN}"


def runtime_dns(*, namespace: str, runtime: str) -> str:
    """The DNS SAN that every runtimed of one Runtime carries, which the fallback demands."""
    return f"{runtime}.{namespace}.runtime.{INTERNAL_DOMAIN}"


_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_RUNTIME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_SEGMENT_SAFE = "!$&'()*+,;=:@"
"""What RFC 3986 lets stand for itself in a path segment, beside letters, digits and `-._~`."""
_ID = rf"(?:[-A-Za-z0-9._~{re.escape(_SEGMENT_SAFE)}]|%[0-9A-Fa-f]{{2}}){{1,{3 * MAX_INVOCATION_ID_BYTES}}}"
_FUNCTION = rf"/v1/namespaces/({_LABEL})/runtimes/({_RUNTIME})/(functions|runs)/({_UUID})"
_INVOKE = re.compile(rf"{_FUNCTION}:invoke")
_CANCEL = re.compile(rf"{_FUNCTION}/invocations/({_ID}):cancel")


MAX_INVOKE_PATH_CHARS = 205
"""Two names of 63, a UID of 36, and the words between them."""
REMEMBERED_PATHS = 4096
"""Some 2 MB. A function is called again and again by one and the same path; others push each other out."""


class InvokePath(msgspec.Struct, frozen=True):
    """A parsed request path. canonical: it is the published spelling (`functions`, not the alias `runs`).

    cancel: the id of the invocation whose end is asked for, decoded; None where one is to begin.
    """

    namespace: str
    runtime: str
    uid: str
    canonical: bool
    cancel: str | None = None

    @property
    def runtime_key(self) -> str:
        """NAMESPACE/NAME of the Runtime."""
        return f"{self.namespace}/{self.runtime}"


def parse_path(path: str) -> InvokePath | None:
    """Reads the path of a request as it came, still percent-encoded; None where it is not of a published form.

    Only the id of an invocation may be percent-encoded. A query string, a dot segment, an upper-case UID or
    namespace, and every other spelling of the same thing are of another form: what is authorized, what is
    routed and what is invoked must be one string.
    """
    if len(path) <= MAX_INVOKE_PATH_CHARS and (invoked := _invoked(path)) is not None:
        return invoked
    if match := _CANCEL.fullmatch(path):
        invocation = unquote(match[5], encoding="latin-1")
        if valid_invocation_id(invocation):
            return InvokePath(match[1], match[2], match[4], match[3] == "functions", invocation)
    return None


@functools.lru_cache(REMEMBERED_PATHS)
def _invoked(path: str) -> InvokePath | None:
    match = _INVOKE.fullmatch(path)
    return None if match is None else InvokePath(match[1], match[2], match[4], match[3] == "functions")


def invoke_path(*, namespace: str, runtime: str, uid: str) -> str:
    """The canonical path of a function, as `status.endpoint.url` publishes it and Envoy's routes match it."""
    return f"/v1/namespaces/{namespace}/runtimes/{runtime}/functions/{uid}:invoke"


def cancel_path(*, namespace: str, runtime: str, uid: str, invocation: str) -> str:
    """The canonical path that cancels one invocation by its id."""
    base = invoke_path(namespace=namespace, runtime=runtime, uid=uid).removesuffix(":invoke")
    return f"{base}/invocations/{quote(invocation, safe=_SEGMENT_SAFE)}:cancel"
