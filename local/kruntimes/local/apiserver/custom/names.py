"""Whether the names of a CustomResourceDefinition are free, and what its conditions say of it. Pure."""

from kruntimes.local.apiserver.strategy import Context, Json
from kruntimes.local.apiserver.values import quote

FREE = ("True", "NoConflicts", "no conflicts found")
ESTABLISHED = ("True", "InitialNamesAccepted", "the initial names have been accepted")
NOT_ESTABLISHED = ("False", "NotAccepted", "not all names are accepted")
DELETING = ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")


def established(crd: Json) -> bool:
    """Whether its names are its own, so that it is served."""
    return any(c["type"] == "Established" and c["status"] == "True" for c in crd["status"]["conditions"])


def taken(crd: Json, others: list[Json]) -> tuple[str, str, str] | None:
    """What NamesAccepted says where another definition has one of its names."""
    spec = crd["spec"]
    names = spec["names"]
    for other in others:
        theirs = other["status"]["acceptedNames"]
        if other["spec"]["group"] != spec.get("group") or not theirs["kind"]:
            continue
        kinds = {theirs["kind"], theirs.get("listKind")}
        words = {theirs["plural"], theirs.get("singular"), *(theirs.get("shortNames") or ())}
        wanted = [
            ("KindConflict", names.get("kind"), kinds),
            ("ListKindConflict", names.get("listKind"), kinds),
            ("PluralConflict", names.get("plural"), words),
            ("SingularConflict", names.get("singular"), words),
            *(("ShortNamesConflict", name, words) for name in names.get("shortNames") or ()),
        ]
        for reason, name, held in wanted:
            if name and name in held:
                return "False", reason, f"{quote(name)} is already in use"
    return None


def condition(type_: str, said: tuple[str, str, str], ctx: Context) -> Json:
    """One condition of the status."""
    status, reason, message = said
    return {
        "type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": ctx.timestamp,
    }  # fmt: skip
