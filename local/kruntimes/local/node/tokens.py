"""ServiceAccount tokens bound to a Pod, replaced at 80 % of their life, as kubelet does it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from kruntimes.common import clock
from kruntimes.common.api.views import View
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import ApiError
from kruntimes.common.kube.transport import Kube
from kruntimes.local.node.pods import NodePod, TokenSource

RENEW_AT = 0.8
RETRY_SECONDS = 5.0
"""Between tries while the API server does not answer; the old token is good for minutes more."""
MIN_WAIT_SECONDS = 10.0
"""However short a token's life is said to be, it is not asked for more often."""


class _Status(View, frozen=True):
    token: str = ""
    expiration_timestamp: str = ""


class _TokenRequest(View, frozen=True):
    status: _Status = _Status()


@dataclass(frozen=True, slots=True)
class Token:
    """A token and the seconds until it is to be replaced."""

    text: str
    good_for: float


async def request(
    kube: Kube, *, namespace: str, account: str, source: TokenSource, pod: NodePod | None = None
) -> Token:
    """Asks for a token of *account*, bound to *pod* where there is one. Raises the errors of `kube.errors`."""
    spec: dict[str, object] = {"expirationSeconds": source.expiration_seconds}
    if source.audience:
        spec["audiences"] = [source.audience]
    if pod is not None:
        spec["boundObjectRef"] = {
            "apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid,
        }  # fmt: skip
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = await kube.create(paths.serviceaccounts(namespace, account, "token"), body, _TokenRequest)
    left = clock.parse(answer.status.expiration_timestamp).timestamp() - clock.wall()
    return Token(answer.status.token, max(MIN_WAIT_SECONDS, left * RENEW_AT))


async def keep(
    kube: Kube,
    first: Token,
    *,
    namespace: str,
    account: str,
    source: TokenSource,
    replaced: Callable[[str], None],
    pod: NodePod | None = None,
) -> None:
    """Replaces *first* and its successors for ever; *replaced* gets each new token."""
    token = first
    while True:
        await asyncio.sleep(token.good_for)
        try:
            token = await request(kube, namespace=namespace, account=account, source=source, pod=pod)
        except ApiError:
            token = Token(token.text, RETRY_SECONDS)
            continue
        replaced(token.text)
