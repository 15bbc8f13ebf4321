"""`kubectl logs`: the log of a container, fetched from the node that runs its Pod. Shell around a pure choice.

The node tells its address and port in its status (`addresses`, `daemonEndpoints`), as a kubelet does.
"""

import ssl
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
from aiohttp import web

from kruntimes.local.apiserver.api import Api
from kruntimes.local.apiserver.status import StatusError, bad_request, internal

Json = dict[str, Any]

CONNECT_SECONDS = 5.0
CHUNK_BYTES = 64 * 1024
REASONS = {400: "BadRequest", 403: "Forbidden", 404: "NotFound", 422: "Invalid"}
PASSED = ("follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes")


def container_of(pod: Json, asked: str) -> str:
    """The container whose log is meant; raises BadRequest as the real server does."""
    spec, name = pod.get("spec", {}), pod["metadata"]["name"]
    main = [c["name"] for c in spec.get("containers", [])]
    initial = [c["name"] for c in spec.get("initContainers", [])]
    if not asked:
        if len(main) == 1 and not initial:
            return str(main[0])
        chosen = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
        if chosen in main:
            return str(chosen)
        said = f"a container name must be specified for pod {name}, choose one of: [{' '.join(main)}]"
        if initial:
            said += f" or one of the init containers: [{' '.join(initial)}]"
        raise bad_request(said)
    if asked not in (*main, *initial):
        raise bad_request(f"container {asked} is not valid for pod {name}")
    return asked


def address_of(node: Json) -> str:
    """Host and port of a node's log server; raises InternalError where it tells none."""
    status = node.get("status", {})
    port = status.get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port")
    addresses = {a["type"]: a["address"] for a in status.get("addresses", [])}
    host = addresses.get("InternalIP") or addresses.get("Hostname")
    if not port or not host:
        raise internal(f"node {node['metadata']['name']} tells no address for logs")
    return f"{host}:{port}"


class NodeLogs:
    """Streams logs to callers. tls: made when first needed, since few starts need it."""

    def __init__(self, api: Api, tls: Callable[[], ssl.SSLContext]) -> None:
        self._api, self._make_tls = api, tls
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Ends every stream."""
        if self._session is not None:
            await self._session.close()

    async def serve(
        self, request: web.BaseRequest, namespace: str, name: str, query: Mapping[str, str]
    ) -> web.StreamResponse:
        """Answers GET …/pods/NAME/log."""
        resources = self._api.resources
        pods, nodes = resources.find("", "v1", "pods"), resources.find("", "v1", "nodes")
        assert pods is not None
        assert nodes is not None
        pod = self._api.get(pods, namespace, name)
        container = container_of(pod, query.get("container", ""))
        node_name = pod.get("spec", {}).get("nodeName")
        if not node_name:
            return web.Response(status=204)  # nothing has been logged yet
        where = address_of(self._api.get(nodes, "", node_name))
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._make_tls())
            limit = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
            self._session = aiohttp.ClientSession(connector=connector, timeout=limit, trust_env=False)
        url = f"https://{where}/containerLogs/{namespace}/{name}/{container}"
        passed = {key: query[key] for key in PASSED if key in query}
        try:
            async with self._session.get(url, params=passed) as answer:
                if answer.status != 200:
                    said = (await answer.content.read(1024)).decode(errors="replace")
                    reason = REASONS.get(answer.status, "InternalError")
                    raise StatusError(answer.status, reason, said)
                response = web.StreamResponse(headers={"Content-Type": "text/plain"})
                await response.prepare(request)
                async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                    await response.write(chunk)
                await response.write_eof()
                return response
        except (aiohttp.ClientError, TimeoutError) as error:
            raise internal(f"Get {url!r}: {type(error).__name__}") from error
