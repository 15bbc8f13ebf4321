"""The options of reads: which version, which moment, how much, how long. Pure; refusals in the real server's words."""

from dataclasses import dataclass

from kruntimes.local.apiserver.metadata import forbidden_value, invalid_value, not_supported
from kruntimes.local.apiserver.negotiation import Query, flag, number
from kruntimes.local.apiserver.status import About, Cause, StatusError, bad_request, invalid

_MATCHES = ["Exact", "NotOlderThan"]
_OPTIONS = About(group="meta.k8s.io", kind="ListOptions")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """How a list is wanted. exact: the version that it must show; at_least: the one that it must have reached."""

    limit: int
    token: str
    exact: int | None = None
    at_least: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """How a watch is wanted.

    since: the version after which it begins. objects: whether it begins with the objects that there are. mark_end:
    whether a bookmark says where those end. seconds: its life, None for as long as the server likes.
    """

    since: int
    objects: bool
    mark_end: bool
    bookmarks: bool
    seconds: int | None


def is_watch(query: Query) -> bool:
    """Whether a GET of a collection watches: anything but `false` and `0` says so, once it is said at all."""
    return "watch" in query and query["watch"] not in ("false", "0")


def version(text: str) -> None:
    """Raises where the resourceVersion of a single read is no number."""
    if text and not text.isdecimal():
        raise _not_a_version(text)


def _not_a_version(text: str) -> StatusError:
    cause = invalid_value("resourceVersion", text[:40], f'strconv.ParseUint: parsing "{text[:40]}": invalid syntax')
    return StatusError(500, "", f"{cause.field}: {cause.message}")


def list_options(query: Query) -> ListOptions:
    """Of a list. Raises BadRequest and Invalid."""
    text, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    limit, token = max(number(query, "limit") or 0, 0), query.get("continue", "")
    number(query, "timeoutSeconds")
    if flag(query, "sendInitialEvents") is not None:
        raise invalid(_OPTIONS, [forbidden_value("sendInitialEvents", "sendInitialEvents is forbidden for list")])
    if match:
        _check_match(match, text, token)
    if token:
        if text not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        return ListOptions(limit=limit, token=token)
    if text and not text.isdecimal():
        raise bad_request(f"invalid resource version: {_not_a_version(text).message}")
    asked = int(text or "0")
    return ListOptions(limit=limit, token="", exact=asked if match == "Exact" else None, at_least=asked)


def _check_match(match: str, text: str, token: str) -> None:
    at = "resourceVersionMatch"
    causes: list[Cause] = []
    if not text:
        causes.append(forbidden_value(at, f"{at} is forbidden unless resourceVersion is provided"))
    if token:
        causes.append(forbidden_value(at, f"{at} is forbidden when continue is provided"))
    if match not in _MATCHES:
        causes.append(not_supported(at, match, _MATCHES))
    if match == "Exact" and text == "0":
        causes.append(forbidden_value(at, f'{at} "exact" is forbidden for resourceVersion "0"'))
    if causes:
        raise invalid(_OPTIONS, causes)


def watch_options(query: Query) -> WatchOptions:
    """Of a watch. Raises BadRequest, Invalid, and a 500 for a version that is none, as the real server does."""
    text, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    initial, bookmarks = flag(query, "sendInitialEvents"), bool(flag(query, "allowWatchBookmarks"))
    at = "resourceVersionMatch"
    causes: list[Cause] = []
    if initial is None and match:
        causes.append(forbidden_value(at, f"{at} is forbidden for watch unless sendInitialEvents is provided"))
    elif initial is not None and not match:
        why = f"sendInitialEvents requires setting {at} to NotOlderThan"
        causes.append(forbidden_value(at, why))
    elif initial is not None and match != "NotOlderThan":
        causes.append(not_supported(at, match, ["NotOlderThan"]))
    seconds = number(query, "timeoutSeconds")
    if causes:
        raise invalid(_OPTIONS, causes)
    if text and not text.isdecimal():
        raise _not_a_version(text)
    since = int(text or "0")
    objects = initial if initial is not None else since == 0
    return WatchOptions(
        since=since, objects=objects, mark_end=objects and bookmarks, bookmarks=bookmarks, seconds=seconds
    )


def too_new(asked: int, current: int) -> StatusError:
    """A version that the server has not reached."""
    cause = Cause("", "ResourceVersionTooLarge", "Too large resource version")
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return StatusError(504, "Timeout", message, causes=[cause], retry_after=1)
