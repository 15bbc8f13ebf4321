"""Kubernetes' own types in expressions: quantities, IP addresses, CIDRs, URLs, named formats, versions. Pure."""

import ipaddress
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit

from kruntimes.local.apiserver import metadata
from kruntimes.local.apiserver.cel import types
from kruntimes.local.apiserver.cel.core import CORE
from kruntimes.local.apiserver.cel.errors import EvaluationError
from kruntimes.local.apiserver.cel.types import BOOL, CIDR, DOUBLE, FORMAT, INT, IP, QUANTITY, SEMVER, STRING, URL, Type
from kruntimes.local.apiserver.cel.values import INT_MAX, INT_MIN, NONE, Optional
from kruntimes.local.apiserver.quantities import BadQuantity, parse_quantity
from kruntimes.local.apiserver.schema.formats import FORMATS

# ---------------------------------------------------------------- quantities


@dataclass(frozen=True, slots=True)
class Quantity:
    """An amount."""

    TYPE: ClassVar[Type] = QUANTITY
    amount: Decimal


def _quantity(text: str) -> Quantity:
    try:
        return Quantity(parse_quantity(text))
    except BadQuantity as bad:
        raise EvaluationError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from bad


def _possible(make: Any) -> Any:
    """Whether *make* takes a text."""

    def check(*args: Any) -> bool:
        try:
            make(*args)
        except EvaluationError:
            return False
        return True

    return check


def _whole(q: Quantity) -> bool:
    # As there: an amount that is written with a fraction is none, be it a whole number or not.
    return Decimal(q.amount).as_tuple().exponent >= 0 and INT_MIN <= q.amount <= INT_MAX  # type: ignore[operator]


def _as_integer(q: Quantity) -> int:
    if not _whole(q):
        raise EvaluationError("cannot convert value to integer")
    return int(q.amount)


def _quantities() -> None:
    member = CORE.member
    CORE.function("quantity", STRING, to=QUANTITY)(_quantity)
    CORE.function("isQuantity", STRING, to=BOOL)(_possible(_quantity))
    member("sign", QUANTITY, to=INT)(lambda q: (q.amount > 0) - (q.amount < 0))
    member("isGreaterThan", QUANTITY, QUANTITY, to=BOOL)(lambda a, b: a.amount > b.amount)
    member("isLessThan", QUANTITY, QUANTITY, to=BOOL)(lambda a, b: a.amount < b.amount)
    member("compareTo", QUANTITY, QUANTITY, to=INT)(lambda a, b: (a.amount > b.amount) - (a.amount < b.amount))
    member("asApproximateFloat", QUANTITY, to=DOUBLE)(lambda q: float(q.amount))
    member("asInteger", QUANTITY, to=INT)(_as_integer)
    member("isInteger", QUANTITY, to=BOOL)(_whole)
    member("add", QUANTITY, QUANTITY, to=QUANTITY)(lambda a, b: Quantity(a.amount + b.amount))
    member("add", QUANTITY, INT, to=QUANTITY)(lambda a, b: Quantity(a.amount + b))
    member("sub", QUANTITY, QUANTITY, to=QUANTITY)(lambda a, b: Quantity(a.amount - b.amount))
    member("sub", QUANTITY, INT, to=QUANTITY)(lambda a, b: Quantity(a.amount - b))


# ---------------------------------------------------------------- addresses

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Interface | ipaddress.IPv6Interface


@dataclass(frozen=True, slots=True)
class Ip:
    """An address."""

    TYPE: ClassVar[Type] = IP
    address: _Address


@dataclass(frozen=True, slots=True)
class Cidr:
    """An address with a prefix length."""

    TYPE: ClassVar[Type] = CIDR
    network: _Network


def _why(text: str) -> str:
    return f'ParseAddr("{text}"): unable to parse IP'


def _ip(text: str) -> Ip:
    try:
        found = ipaddress.ip_address(text)
    except ValueError as bad:
        raise EvaluationError(f'IP Address "{text}" parse error during conversion from string: {_why(text)}') from bad
    if isinstance(found, ipaddress.IPv6Address) and (found.ipv4_mapped is not None or found.scope_id):
        raise EvaluationError(f'IP Address "{text}" parse error: IPv4-mapped IPv6 addresses and zones are not allowed')
    return Ip(found)


def _cidr(text: str) -> Cidr:
    address, slash, bits = text.partition("/")
    if not slash or not (bits.isascii() and bits.isdigit()):
        raise EvaluationError(f'network address parse error during conversion from string: "{text}"')
    _ip(address)
    try:
        return Cidr(ipaddress.ip_interface(text))
    except ValueError as bad:
        raise EvaluationError(f'network address parse error during conversion from string: "{text}"') from bad


def _holds(cidr: Cidr, address: _Address) -> bool:
    return address.version == cidr.network.version and address in cidr.network.network


def _holds_network(cidr: Cidr, other: Cidr) -> bool:
    mine, its = cidr.network.network, other.network
    return its.ip in mine and mine.prefixlen <= its.network.prefixlen if mine.version == its.version else False


def _addresses() -> None:
    member = CORE.member
    CORE.function("ip", STRING, to=IP)(_ip)
    CORE.function("isIP", STRING, to=BOOL)(_possible(_ip))
    CORE.function("ip.isCanonical", STRING, to=BOOL)(lambda text: str(_ip(text).address) == text)
    CORE.function("string", IP, to=STRING)(lambda ip: str(ip.address))
    member("family", IP, to=INT)(lambda ip: ip.address.version)
    member("isUnspecified", IP, to=BOOL)(lambda ip: ip.address.is_unspecified)
    member("isLoopback", IP, to=BOOL)(lambda ip: ip.address.is_loopback)
    member("isLinkLocalMulticast", IP, to=BOOL)(_link_local_multicast)
    member("isLinkLocalUnicast", IP, to=BOOL)(lambda ip: ip.address.is_link_local)
    member("isGlobalUnicast", IP, to=BOOL)(_global_unicast)
    CORE.function("cidr", STRING, to=CIDR)(_cidr)
    CORE.function("isCIDR", STRING, to=BOOL)(_possible(_cidr))
    CORE.function("string", CIDR, to=STRING)(lambda cidr: str(cidr.network))
    member("containsIP", CIDR, STRING, to=BOOL)(lambda cidr, text: _holds(cidr, _ip(text).address))
    member("containsIP", CIDR, IP, to=BOOL)(lambda cidr, ip: _holds(cidr, ip.address))
    member("containsCIDR", CIDR, STRING, to=BOOL)(lambda cidr, text: _holds_network(cidr, _cidr(text)))
    member("containsCIDR", CIDR, CIDR, to=BOOL)(_holds_network)
    member("ip", CIDR, to=IP)(lambda cidr: Ip(cidr.network.ip))
    member("prefixLength", CIDR, to=INT)(lambda cidr: cidr.network.network.prefixlen)
    member("masked", CIDR, to=CIDR)(lambda cidr: Cidr(ipaddress.ip_interface(cidr.network.network)))


def _link_local_multicast(ip: Ip) -> bool:
    wide = ipaddress.ip_network("224.0.0.0/24" if ip.address.version == 4 else "ff02::/16")
    return ip.address in wide


def _global_unicast(ip: Ip) -> bool:
    address = ip.address
    broadcast = address == ipaddress.IPv4Address("255.255.255.255")
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not broadcast and not special


# ---------------------------------------------------------------- URLs


@dataclass(frozen=True, slots=True)
class Url:
    """An absolute URI, or an absolute path."""

    TYPE: ClassVar[Type] = URL
    parts: SplitResult


def _url(text: str) -> Url:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as bad:
        raise EvaluationError(f"URL parse error during conversion from string: {bad}") from bad
    if any(ord(c) <= 0x20 for c in text) or not (parts.scheme or text.startswith("/")):
        raise EvaluationError(f'URL parse error during conversion from string: parse "{text}": invalid URI for request')
    return Url(parts)


def _host(url: Url) -> str:
    return url.parts.netloc.rpartition("@")[2]


def _hostname(url: Url) -> str:
    host = _host(url)
    return host[1 : host.index("]")] if host.startswith("[") and "]" in host else host.partition(":")[0]


def _urls() -> None:
    member = CORE.member
    CORE.function("url", STRING, to=URL)(_url)
    CORE.function("isURL", STRING, to=BOOL)(_possible(_url))
    member("getScheme", URL, to=STRING)(lambda url: url.parts.scheme)
    member("getHost", URL, to=STRING)(_host)
    member("getHostname", URL, to=STRING)(_hostname)
    member("getPort", URL, to=STRING)(lambda url: "" if url.parts.port is None else str(url.parts.port))
    member("getEscapedPath", URL, to=STRING)(lambda url: quote(unquote(url.parts.path), safe="/$&+,:;=@!'()*~-._"))
    query = types.map_of(STRING, types.list_of(STRING))
    member("getQuery", URL, to=query)(lambda url: parse_qs(url.parts.query, keep_blank_values=True))


# ---------------------------------------------------------------- named formats


@dataclass(frozen=True, slots=True)
class Format:
    """A format by its name."""

    TYPE: ClassVar[Type] = FORMAT
    name: str


def _by(rule: str) -> Any:
    return lambda text: metadata.name_faults(text, rule)


def _label_value(text: str) -> list[str]:
    if not text:
        return []
    return [metadata.LABEL_VALUE_RULE] if "/" in text or metadata.key_faults(text) else []


def _of_schema(name: str, why: str) -> Any:
    return lambda text: [] if FORMATS[name](text) else [why]


_CHECKS: dict[str, Any] = {
    "dns1123Label": _by("label"),
    "dns1123Subdomain": _by("subdomain"),
    "dns1035Label": _by("label1035"),
    "qualifiedName": metadata.key_faults,
    "dns1123LabelPrefix": lambda text: metadata.name_faults(re.sub(r"-$", "a", text), "label"),
    "dns1123SubdomainPrefix": lambda text: metadata.name_faults(re.sub(r"[-.]$", "a", text), "subdomain"),
    "dns1035LabelPrefix": lambda text: metadata.name_faults(re.sub(r"-$", "a", text), "label1035"),
    "labelValue": _label_value,
    "uri": _of_schema("uri", "invalid URI"),
    "uuid": _of_schema("uuid", "does not match the UUID format"),
    "byte": _of_schema("byte", "invalid base64"),
    "date": _of_schema("date", "invalid date"),
    "datetime": _of_schema("datetime", "invalid datetime"),
}  # fmt: skip


def _validated(format: Format, text: str) -> Optional:
    faults = _CHECKS[format.name](text)
    return Optional(True, faults) if faults else NONE


def _formats() -> None:
    for name in _CHECKS:
        CORE.function(f"format.{name}", to=FORMAT)(lambda name=name: Format(name))
    CORE.function("format.named", STRING, to=types.optional_of(FORMAT))(
        lambda name: Optional(True, Format(name)) if name in _CHECKS else NONE
    )
    CORE.member("validate", FORMAT, STRING, to=types.optional_of(types.list_of(STRING)))(_validated)


# ---------------------------------------------------------------- versions


@dataclass(frozen=True, slots=True)
class Semver:
    """A version; build metadata does not count."""

    TYPE: ClassVar[Type] = SEMVER
    numbers: tuple[int, int, int]
    pre: tuple[tuple[bool, int, str], ...] = ()

    def key(self) -> Any:
        """What orders versions: a release comes after its pre-releases, numbers before words."""
        return self.numbers, not self.pre, self.pre


_NUMBER = r"(0|[1-9][0-9]*)"
_WORD = r"(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_WORD}(?:\.{_WORD})*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)


def _semver(text: str, normalize: bool = False) -> Semver:
    if normalize:
        text = re.sub(r"(^|\.)0+(?=[0-9])", r"\1", text.removeprefix("v"))
        core = re.match(r"[0-9.]*", text)
        missing = 2 - core[0].count(".") if core is not None else 0
        text = core[0] + ".0" * missing + text[core.end() :] if core is not None and core[0] else text
    match = _SEMVER.fullmatch(text)
    if match is None:
        raise EvaluationError(f"invalid semantic version: {text}")
    words = match[4].split(".") if match[4] else []
    pre = tuple((not word.isdigit(), int(word) if word.isdigit() else 0, word) for word in words)
    return Semver((int(match[1]), int(match[2]), int(match[3])), pre)


def _versions() -> None:
    member = CORE.member
    for extra in ((), (BOOL,)):
        CORE.function("semver", STRING, *extra, to=SEMVER)(_semver)
        CORE.function("isSemver", STRING, *extra, to=BOOL)(_possible(_semver))
    member("isGreaterThan", SEMVER, SEMVER, to=BOOL)(lambda a, b: a.key() > b.key())
    member("isLessThan", SEMVER, SEMVER, to=BOOL)(lambda a, b: a.key() < b.key())
    member("compareTo", SEMVER, SEMVER, to=INT)(lambda a, b: (a.key() > b.key()) - (a.key() < b.key()))
    for i, name in enumerate(("major", "minor", "patch")):
        member(name, SEMVER, to=INT)(lambda version, i=i: version.numbers[i])


_quantities()
_addresses()
_urls()
_formats()
_versions()
