"""What goes over the wire and what it means: requests and answers as values. Pure, shared by both clients."""

import base64
import binascii
import ipaddress
import json
import re
import ssl
import tempfile
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from kruntimes.common.api.names import GROUP, RUNS, VERSION
from kruntimes.common.api.outcomes import (
    INVOCATION_ID,
    MAX_BODY_BYTES,
    OUTCOME,
    TIMEOUT_MS,
    Outcome,
    valid_invocation_id,
)
from kruntimes.common.api.phases import TERMINAL, Phase
from kruntimes.common.api.views import Run
from kruntimes.sdk.errors import (
    FAILURES,
    ApiError,
    ConfigError,
    EndedError,
    Failed,
    NotFoundError,
    NotReadyError,
    OutcomeUnknown,
)
from kruntimes.sdk.kubeconfig import Access

JSON = "application/json"
API_SECONDS = 15.0
CONNECT_SECONDS = 10.0
READY_SECONDS = 60.0
ROUTE_MARGIN_SECONDS = 10.0
"""How much longer than the invocation's own deadline the client waits: the platform answers 504 well before."""
DEFAULT_DEADLINE_SECONDS = 60.0
PHASE = "phase="
"""What a state begins with that is a phase."""
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """What a function returned. body: its bytes as they are; content_type: what the handler said they are."""

    invocation_id: str
    body: bytes
    content_type: str
    outcome: Outcome = Outcome.COMPLETED

    def json(self) -> Any:
        """The body, decoded. Raises ValueError where it is not JSON."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One invocation, ready to be sent. timeout: seconds that the client waits for the answer."""

    url: str
    headers: dict[str, str] = field(repr=False)
    body: bytes
    invocation_id: str
    timeout: float


def call(
    url: str,
    *,
    token: str,
    body: bytes,
    content_type: str = JSON,
    invocation_id: str | None = None,
    timeout: float | None = None,
    accept: str | None = None,
) -> Call:
    """Builds an invocation of the function at *url*. timeout: its deadline in seconds, the platform's own by default.

    Raises ValueError for what the platform would refuse without looking further.
    """
    if not url.startswith("https://"):
        raise ValueError("an endpoint is https; a bearer token is never sent in the clear")
    if len(body) > MAX_BODY_BYTES:
        raise ValueError(f"the body has {len(body)} bytes; {MAX_BODY_BYTES} is the limit")
    name = invocation_id if invocation_id is not None else str(uuid.uuid4())
    if not valid_invocation_id(name):
        raise ValueError("an invocation id has 1 to 128 characters of visible ASCII")
    headers = {"authorization": f"Bearer {token}", "content-type": content_type, INVOCATION_ID: name}
    if timeout is not None:
        if timeout <= 0:
            raise ValueError("a timeout lies above 0")
        headers[TIMEOUT_MS] = str(max(1, round(timeout * 1000)))
    if accept is not None:
        headers["accept"] = accept
    wait = (timeout if timeout is not None else DEFAULT_DEADLINE_SECONDS) + ROUTE_MARGIN_SECONDS
    return Call(url=url, headers=headers, body=body, invocation_id=name, timeout=wait)


def read_answer(made: Call, *, status: int, headers: Mapping[str, str], body: bytes) -> Invocation:
    """Returns what the function returned, or raises the `Failed` that the answer means.

    The header says the outcome; a proxy on the way that sets none proves nothing, so that is an unknown outcome.
    """
    name = headers.get(INVOCATION_ID, made.invocation_id)
    if status in (200, 202):
        return Invocation(invocation_id=name, body=body, content_type=headers.get("content-type", ""))
    error = _error_of(body)
    word = headers.get(OUTCOME) or error.get("outcome")
    try:
        kind = FAILURES[Outcome(word)] if word else OutcomeUnknown
    except (KeyError, ValueError):
        kind = OutcomeUnknown
    wait = headers.get("retry-after", "")
    raise kind(
        str(error.get("message") or f"HTTP {status} from something that is not kruntimes"),
        status=status,
        reason=str(error.get("reason") or ""),
        invocation_id=name,
        retry_after=int(wait) if wait.isascii() and wait.isdigit() else None,
        details=error.get("details") if isinstance(error.get("details"), dict) else None,
    )


def limit(made: Call) -> httpx.Timeout:
    """How long to wait for what."""
    return httpx.Timeout(made.timeout, connect=CONNECT_SECONDS)


_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


def lost(made: Call, error: httpx.HTTPError) -> Failed:
    """A call without an answer: only what failed before anything was sent is known not to have run."""
    text = str(error) or type(error).__name__
    if not isinstance(error, _UNSENT):
        return OutcomeUnknown(f"the answer was lost: {text}", invocation_id=made.invocation_id)
    return FAILURES[Outcome.NOT_DISPATCHED](f"no connection: {text}", invocation_id=made.invocation_id)


def _error_of(body: bytes) -> dict[str, Any]:
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return error if isinstance(error, dict) else {}


def bearer(given: Callable[[], str | None] | str | None, access: Access) -> str:
    """The token to call functions with. Raises ConfigError where there is none."""
    token = given() if callable(given) else given
    token = token or access.call_token()
    if not token:
        raise ConfigError(
            "calling a function takes a bearer token, and the kubeconfig has none: "
            "set KRT_TOKEN, for instance to what `kubectl create token SERVICEACCOUNT` prints"
        )
    return token


def own(token: str | None, access: Access) -> dict[str, Any]:
    """What every request to the API server carries: the credential, and the name that its certificate must have."""
    return {
        "headers": {} if token is None else {"authorization": f"Bearer {token}"},
        "extensions": {"sni_hostname": access.tls_server_name} if access.tls_server_name else {},
    }


def unanswered(access: Access, error: httpx.HTTPError) -> ApiError:
    """The error of a request to the API server that got no answer."""
    return ApiError(f"the API server at {access.server} does not answer: {error}")


def runs_path(namespace: str, name: str | None = None) -> str:
    """The API server's path of Runs."""
    for part in (namespace, name):
        if part is not None and not NAME.fullmatch(part):
            raise ApiError(f"{part!r} is not a name", reason="BadName")
    collection = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{RUNS}"
    return collection if name is None else f"{collection}/{name}"


def successor(runs: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Of Runs that have one dev-name: the Ready one, and the youngest of several; None where all are going."""
    here = [run for run in runs if not run["metadata"].get("deletionTimestamp")]

    def rank(run: Mapping[str, Any]) -> tuple[bool, str, int, str]:
        meta = run["metadata"]
        phase = (run.get("status") or {}).get("phase")
        return phase == Phase.READY, meta.get("creationTimestamp", ""), len(meta["name"]), meta["name"]

    return max(here, key=rank, default=None)


def decode_run(data: bytes) -> Run:
    """Reads a Run; raises ApiError for anything else."""
    try:
        return msgspec.json.decode(data, type=Run)
    except msgspec.MsgspecError as error:
        raise ApiError(f"not a Run: {error}") from None


def check_api(status: int, body: bytes, what: str) -> bytes:
    """Returns the body of a 2xx answer of the API server; raises ApiError with its own sentence."""
    if 200 <= status < 300:
        return body
    try:
        said = json.loads(body)
        message, reason = str(said["message"]), str(said.get("reason", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        message, reason = f"{what}: HTTP {status}", ""
    raise (NotFoundError if status == 404 else ApiError)(message, status=status, reason=reason)


def endpoint(run: Run) -> tuple[str, str | None]:
    """The URL and the CA bundle (PEM, None for the system's trust) of a function Run. Raises NotReadyError."""
    given = run.status.endpoint
    if given is None or not given.url:
        state = run.status.phase or "Pending"
        if state in TERMINAL:
            why = f": {run.status.message}" if run.status.message else ""
            raise NotReadyError(f"Run {run.metadata.name} ended as {state} before it had an endpoint{why}")
        raise NotReadyError(f"Run {run.metadata.name} is {state} and has no endpoint yet")
    if not given.ca_bundle:
        return given.url, None
    try:
        return given.url, base64.b64decode(given.ca_bundle, validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        raise NotReadyError(f"Run {run.metadata.name} has an endpoint whose caBundle cannot be read") from None


def reached(run: Run | None, state: str) -> bool:
    """Whether *run* (None: it is gone) is in *state*: `ready`, `ended`, `deleted` or `phase=PHASE`.

    Raises EndedError where it never will be, since a terminal phase stays and a name may be another Run's.
    """
    if state == "deleted":
        return run is None
    if run is None:
        raise EndedError("the Run is gone")
    if state == "ended":
        return run.status.phase in TERMINAL
    wanted = state.removeprefix(PHASE) if state.startswith(PHASE) else None
    if wanted is not None and (run.status.phase or Phase.PENDING) == wanted:
        return True
    if run.status.phase in TERMINAL:
        said = f": {run.status.message}" if run.status.message else ""
        raise EndedError(f"Run {run.metadata.name} ended as {run.status.phase}{said}")
    return run.ready if wanted is None else False


def is_local(url: str) -> bool:
    """Whether *url* names this machine: no proxy could reach it, whatever the environment says."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def cancel_url(url: str, invocation_id: str) -> str:
    """Where one invocation of the function at *url* is cancelled."""
    return f"{url.removesuffix(':invoke')}/invocations/{quote(invocation_id, safe='')}:cancel"


def trust(ca_pem: str | None, *, insecure: bool = False) -> ssl.SSLContext:
    """A client's TLS context that trusts *ca_pem* alone, or what the system trusts."""
    context = ssl.create_default_context(cadata=ca_pem) if ca_pem else ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def api_trust(access: Access) -> ssl.SSLContext:
    """The TLS context for the API server, with the client certificate where there is one."""
    context = trust(access.ca_pem, insecure=access.insecure)
    if access.certificate_pem and access.key_pem:
        # OpenSSL reads a chain from a file only; the file is ours alone and gone when this returns.
        with tempfile.NamedTemporaryFile("w", encoding="ascii") as file:
            file.write(f"{access.certificate_pem}\n{access.key_pem}")
            file.flush()
            context.load_cert_chain(file.name)
    return context
