"""The string formats that a schema may name; any other format means nothing. Pure.

Names are compared without hyphens: `date-time` is `datetime`.
"""

import ipaddress
import re
from collections.abc import Callable
from datetime import date
from urllib.parse import urlsplit

from kruntimes.local.apiserver.durations import BadDuration, parse_duration

_HEX_UUID = r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?%s[0-9a-f]{3}-?%s[0-9a-f]{3}-?[0-9a-f]{12}"
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_SCALA_DURATION = re.compile(
    r"([0-9]+)\s*(ns|nano\w*|us|µs|micro\w*|ms|milli\w*|s|sec\w*|m|min\w*|h|hr|hour\w*|d|day\w*|w|wk|week\w*)(?![A-Za-zµ])",
    re.IGNORECASE,
)
_LETTERS = r"[^\W_]"
_HOST_LABEL = rf"{_LETTERS}(?:(?:{_LETTERS}|-){{0,61}}{_LETTERS})?"
_HOSTNAME = re.compile(rf"{_HOST_LABEL}(?:\.{_HOST_LABEL})*")
_EMAIL_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_MAC = re.compile(
    r"[0-9A-Fa-f]{2}(?:([:-])[0-9A-Fa-f]{2}(?:\1[0-9A-Fa-f]{2}){4}|(\.?)[0-9A-Fa-f]{2}(\.[0-9A-Fa-f]{4}){2})"
)
_CARD = re.compile(
    r"4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11}",
    re.ASCII,
)
_CHANNEL = r"\s*(?:0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*"
_SHORT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
MAX_SHORT_NAME, MAX_LONG_NAME = 63, 253
MAX_HOSTNAME = 255


def _matching(pattern: str) -> Callable[[str], bool]:
    rule = re.compile(pattern, re.ASCII)
    return lambda text: rule.fullmatch(text) is not None


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_date_time(text: str) -> bool:
    day, found, rest = text.lower().partition("t")
    time = _TIME.fullmatch(rest)
    return bool(found) and _is_date(day) and time is not None and time[1] <= "23" and time[2] <= "59" >= time[3]


def _is_duration(text: str) -> bool:
    try:
        parse_duration(text)
    except BadDuration:
        return _SCALA_DURATION.search(text) is not None
    return True


def _is_ip(version: int) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        # Leading zeros in IPv4 are tolerated; they are decimal all the same.
        plain = re.sub(r"(?<![0-9])0+(?=[0-9])", "", text) if version == 4 else text
        try:
            return ipaddress.ip_address(plain).version == version
        except ValueError:
            return False

    return check


def _is_cidr(text: str) -> bool:
    address, slash, bits = text.partition("/")
    if not slash or not (bits.isascii() and bits.isdigit()):
        return False
    return (_is_ip(4)(address) and int(bits) <= 32) or (_is_ip(6)(address) and int(bits) <= 128)


def _is_uri(text: str) -> bool:
    if any(ord(c) <= 0x20 or c == "\x7f" for c in text):
        return False
    if text.startswith("/"):
        return True
    try:
        return bool(urlsplit(text).scheme)
    except ValueError:
        return False


def _is_hostname(text: str) -> bool:
    return len(text.encode()) <= MAX_HOSTNAME and _HOSTNAME.fullmatch(text) is not None


def _is_email(text: str) -> bool:
    address = text[text.rindex("<") + 1 : -1] if text.endswith(">") and "<" in text else text
    local, at, domain = address.rpartition("@")
    return bool(at) and _EMAIL_LOCAL.fullmatch(local) is not None and _EMAIL_LOCAL.fullmatch(domain) is not None


def _is_isbn10(text: str) -> bool:
    digits = text.replace("-", "").replace(" ", "")
    if not re.fullmatch(r"[0-9]{9}[0-9X]", digits):
        return False
    return sum((10 - i) * (10 if c == "X" else int(c)) for i, c in enumerate(digits)) % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = text.replace("-", "").replace(" ", "")
    return (
        bool(re.fullmatch(r"[0-9]{13}", digits)) and sum(int(c) * (1, 3)[i % 2] for i, c in enumerate(digits)) % 10 == 0
    )


def _is_card(text: str) -> bool:
    digits = re.sub(r"[^0-9]+", "", text)
    if not _CARD.fullmatch(digits):
        return False
    doubled = [int(c) * (1 + i % 2) for i, c in enumerate(reversed(digits))]
    return sum(d - 9 if d > 9 else d for d in doubled) % 10 == 0


FORMATS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _matching(r"[0-9a-fA-F]{24}"),
    "uri": _is_uri,
    "email": _is_email,
    "hostname": _is_hostname,
    "ipv4": _is_ip(4),
    "ipv6": _is_ip(6),
    "cidr": _is_cidr,
    "mac": lambda text: _MAC.fullmatch(text) is not None,
    "uuid": _matching(_HEX_UUID % ("[0-9a-f]", "[0-9a-f]")),
    "uuid3": _matching(_HEX_UUID % ("3", "[0-9a-f]")),
    "uuid4": _matching(_HEX_UUID % ("4", "[89ab]")),
    "uuid5": _matching(_HEX_UUID % ("5", "[89ab]")),
    "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "creditcard": _is_card,
    "ssn": _matching(r"[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}"),
    "hexcolor": _matching(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _matching(rf"rgb\({_CHANNEL},{_CHANNEL},{_CHANNEL}\)"),
    "byte": lambda text: _BASE64.fullmatch(text) is not None,
    "password": lambda text: True,
    "date": _is_date,
    "duration": _is_duration,
    "datetime": _is_date_time,
    "k8sshortname": lambda text: len(text) <= MAX_SHORT_NAME and _SHORT_NAME.fullmatch(text) is not None,
    "k8slongname": lambda text: len(text) <= MAX_LONG_NAME and all(map(_SHORT_NAME.fullmatch, text.split("."))),
}
NUMBER_FORMATS = {"integer": ("int32", "int64"), "number": ("float", "double")}


def known(format: str, type: str) -> str:
    """The name under which *format* is known for values of *type*, or empty where it means nothing."""
    if type in ("", "string"):
        name = format.replace("-", "")
        return name if name in FORMATS else ""
    return format if format in NUMBER_FORMATS.get(type, ()) else ""
