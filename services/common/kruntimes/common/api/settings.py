"""The one place where the environment is read and checked (design §13, "environment").

Each service builds its own `Settings` from `os.environ` once, at start; a wrong value ends the start
with a sentence that names the variable.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import msgspec

from kruntimes.common.api.outcomes import DEFAULT_DEADLINE_SECONDS, MAX_DEADLINE_SECONDS

PREFIX = "KRUNTIMES_"
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_SERVICE_LINK = re.compile(r".*(_SERVICE_HOST|_SERVICE_PORT(_[A-Z0-9_]+)?|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)")
"""Variables that Kubernetes adds for each Service; a Service `kruntimes-gateway` makes KRUNTIMES_GATEWAY_PORT."""


class SettingsError(ValueError):
    """A variable of the environment is missing or wrong; the message names it."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the environment may say; a service `require`s what it cannot do without.

    default_timeout and max_timeout are seconds. gateway_names are the DNS names and IP addresses that
    the gateway's serving certificate may carry. serving_dir holds a serving certificate that somebody else keeps
    (tls.crt, tls.key); gateway_ca_file is then what callers must trust. instance is the release's name.
    """

    namespace: str = ""
    pod_name: str = ""
    pod_uid: str = ""
    pod_ip: str = ""
    runtime: str = ""
    instance: str = "kruntimes"
    trust_domain: str = "cluster.local"
    gateway_url: str = ""
    gateway_ca_file: Path | None = None
    gateway_names: tuple[str, ...] = ()
    ca_file: Path | None = None
    token_file: Path | None = None
    executor_socket: Path | None = None
    functions_socket: Path | None = None
    workspace: Path = Path("/workspace")
    state_dir: Path = Path("/run/kruntimes")
    gateway_dir: Path = Path("/run/kruntimes-gateway")
    serving_dir: Path | None = None
    ads_address: str = ""
    bind_address: str = "0.0.0.0"
    gateway_bind_port: int = 8443
    runtimed_pid: int = 0
    log_level: str = "INFO"
    default_timeout: float = DEFAULT_DEADLINE_SECONDS
    max_timeout: float = MAX_DEADLINE_SECONDS
    authz_verb: str = "get"
    authz_group: str = "kruntimes.io"
    authz_resource: str = "runs"
    authz_subresource: str = ""
    daemon_image: str = ""

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Self:
        """Reads KRUNTIMES_* from *environ*; unknown names under the prefix are refused, since they are typing errors.

        Raises SettingsError. An empty value counts as absent.
        """
        fields = {PREFIX + f.name.upper(): f for f in msgspec.structs.fields(cls)}
        values: dict[str, object] = {}
        for name, text in environ.items():
            if not name.startswith(PREFIX) or not text:
                continue
            field = fields.get(name)
            if field is None and _SERVICE_LINK.fullmatch(name):
                continue
            if field is None:
                raise SettingsError(f"{name} is not a setting of kruntimes")
            try:
                values[field.name] = _read(field.type, text)
            except ValueError as error:
                raise SettingsError(f"{name}: {error}") from None
        settings = cls(**values)  # type: ignore[arg-type]
        if settings.log_level not in LOG_LEVELS:
            raise SettingsError(f"{PREFIX}LOG_LEVEL must be one of {', '.join(LOG_LEVELS)}")
        if not 0 < settings.default_timeout <= settings.max_timeout:
            raise SettingsError(f"{PREFIX}DEFAULT_TIMEOUT must lie above 0 and not above {PREFIX}MAX_TIMEOUT")
        if settings.gateway_url and not re.fullmatch(r"https://[^/?#\s]+", settings.gateway_url):
            raise SettingsError(f"{PREFIX}GATEWAY_URL must be https://HOST[:PORT] without a path")
        return settings

    def require(self, *names: str) -> Self:
        """Raises SettingsError that names every missing variable among *names*; returns itself."""
        missing = [PREFIX + name.upper() for name in names if not getattr(self, name)]
        if missing:
            raise SettingsError(f"missing in the environment: {', '.join(missing)}")
        return self


def _read(kind: object, text: str) -> object:
    if kind is float:
        if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", text):
            raise ValueError("not a number of seconds")
        return float(text)
    if kind is int:
        if not re.fullmatch(r"[0-9]{1,9}", text):
            raise ValueError("not a whole number")
        return int(text)
    if kind is str:
        return text
    if kind == tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return Path(text)
