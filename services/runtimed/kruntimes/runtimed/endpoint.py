"""What a Ready Run publishes: its URL at the gateway, and the bundle that the gateway's certificate chains to."""

import base64
import logging
from pathlib import Path

from kruntimes.common.api.names import invoke_path
from kruntimes.common.api.views import Endpoint, Run

log = logging.getLogger(__name__)

MAX_BUNDLE_BYTES = 16 * 1024
"""status.endpoint.caBundle, decoded (design §4)."""


class Endpoints:
    """Endpoints under *gateway_url*.

    ca_file: the bundle to publish, re-read by `refresh`; None or an empty file publishes none, for gateways whose
    certificate chains to a root that callers have anyway.
    """

    def __init__(self, gateway_url: str, ca_file: Path | None) -> None:
        self._url = gateway_url.rstrip("/")
        self._ca_file = ca_file
        self._bundle: str | None = None
        self.refresh()

    def refresh(self) -> bool:
        """Reads the bundle again; returns whether it has changed. A file that cannot be read keeps the last."""
        if self._ca_file is None:
            return False
        try:
            pem = self._ca_file.read_bytes()
        except OSError as error:
            log.warning("gateway ca bundle not read", extra={"error": error.strerror})
            return False
        if len(pem) > MAX_BUNDLE_BYTES:
            log.error("gateway ca bundle too large to publish", extra={"bytes": len(pem)})
            return False
        bundle = base64.b64encode(pem).decode() if pem.strip() else None
        changed, self._bundle = bundle != self._bundle, bundle
        return changed

    def of(self, run: Run) -> Endpoint:
        """The endpoint of *run*."""
        path = invoke_path(namespace=run.metadata.namespace, runtime=run.spec.runtime, uid=run.metadata.uid)
        return Endpoint(protocol="HTTPS", url=self._url + path, ca_bundle=self._bundle)
