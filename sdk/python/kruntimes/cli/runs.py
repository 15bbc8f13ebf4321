"""Which Run a NAME means.

`krt dev` puts a new Run in the place of one whose file has changed, under another name, since specifications are
immutable. Both carry the first one's name as label `kruntimes.io/dev-name`, and a command that is given that name
follows it as soon as the first is gone or going.
"""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kruntimes.sdk.client import Client


def find(client: "Client", name: str) -> dict[str, Any]:
    """The Run called *name*, or the one in its place, as the API shows it. Raises NotFoundError."""
    from kruntimes.common.api.names import NAME_LABEL
    from kruntimes.sdk import wire
    from kruntimes.sdk.errors import ApiError, NotFoundError

    namespace = client.access.namespace
    missing: NotFoundError | None = None
    found: dict[str, Any] = {}
    try:
        found = json.loads(client.request("GET", wire.runs_path(namespace, name)))
        if not found["metadata"].get("deletionTimestamp"):
            return found
    except NotFoundError as error:
        missing = error
    try:
        query = {"labelSelector": f"{NAME_LABEL}={name}"}
        items = json.loads(client.request("GET", wire.runs_path(namespace), query=query))["items"]
    except ApiError:
        items = []
    # The selector is the server's to obey; what it lets through is looked at again.
    named = (run for run in items if run["metadata"].get("labels", {}).get(NAME_LABEL) == name)
    chosen = wire.successor(named)
    if chosen is not None:
        return dict(chosen)
    if missing is not None:
        raise missing
    return found


def name_of(client: "Client", name: str) -> str:
    """The name of that Run itself; *name* where there is none."""
    from kruntimes.sdk.errors import NotFoundError

    try:
        return str(find(client, name)["metadata"]["name"])
    except NotFoundError:
        return name
