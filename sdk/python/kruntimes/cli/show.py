"""How Runs look in a terminal. Pure: objects and the present moment in, text out."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

COLUMNS = ("NAME", "PHASE", "RUNTIME", "POD", "AGE")
WIDE = (*COLUMNS, "ATTEMPT", "UID", "URL")


def age(created: str, *, now: datetime) -> str:
    """How long ago, as kubectl says it: `7s`, `12m`, `3h`, `2d`."""
    if not created:
        return ""
    passed = max(0, int((now - datetime.fromisoformat(created)).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if passed >= 2 * size:
            return f"{passed // size}{unit}"
    return f"{passed}s"


def row(run: Mapping[str, Any], *, now: datetime) -> tuple[str, ...]:
    """One Run's cells, for the wide columns."""
    meta, status = run["metadata"], run.get("status") or {}
    return (
        meta["name"],
        ("Deleting" if meta.get("deletionTimestamp") else status.get("phase")) or "Pending",
        run["spec"]["runtime"],
        status.get("assignedPod", ""),
        age(meta.get("creationTimestamp", ""), now=now),
        str(status.get("attempt", 0)),
        meta["uid"],
        (status.get("endpoint") or {}).get("url", ""),
    )


def table(runs: Sequence[Mapping[str, Any]], *, now: datetime, wide: bool) -> str:
    """The table of *runs*."""
    columns = WIDE if wide else COLUMNS
    rows = [columns, *(row(run, now=now)[: len(columns)] for run in runs)]
    widths = [max(len(cells[at]) for cells in rows) for at in range(len(columns))]
    return "\n".join("   ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip() for cells in rows)


def rendered(obj: Any, form: str) -> str:
    """An object, or a list of them, as JSON or YAML: source text as it was written, and without `managedFields`.

    The last line end is left to who prints it.
    """
    obj = {**obj, "items": [_bare(item) for item in obj["items"]]} if "items" in obj else _bare(obj)
    if form == "json":
        return json.dumps(obj, indent=2, ensure_ascii=False)
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes text of several lines as a block."""

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return yaml.dump(obj, Dumper=Dumper, sort_keys=False, allow_unicode=True).removesuffix("\n")


def _bare(obj: Mapping[str, Any]) -> dict[str, Any]:
    """The object without `managedFields`, which kubectl does not show either."""
    return {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "managedFields"}}


def description(run: Mapping[str, Any], events: Sequence[Mapping[str, Any]], *, now: datetime) -> str:
    """Everything that a person asks about one Run: what it is, where it is, why, and what happened."""
    meta, spec, status = run["metadata"], run["spec"], run.get("status") or {}
    task = spec["mode"].get("task")
    facts = {
        "Name": f"{meta['namespace']}/{meta['name']}",
        "UID": meta["uid"],
        "Runtime": spec["runtime"],
        "Handler": (spec["mode"].get("function") or {}).get("handler", ""),
        "Task": " ".join([task.get("entrypoint") or "(the Runtime's)", *task.get("args", ())])
        if task is not None
        else "",
        "Phase": status.get("phase") or "Pending",
        "Deleting": age(meta.get("deletionTimestamp") or "", now=now),
        "Attempt": str(status.get("attempt", 0)),
        "Pod": status.get("assignedPod", ""),
        "Endpoint": (status.get("endpoint") or {}).get("url", ""),
        "Message": status.get("message", "").replace("\n", "\n            "),
    }
    lines = [f"{name + ':':<11} {value}" for name, value in facts.items() if value]
    lines.append("Conditions:")
    for one in status.get("conditions") or []:
        since = age(one.get("lastTransitionTime", ""), now=now)
        said = f": {one['message']}" if one.get("message") else ""
        lines.append(f"  {one['type']}={one['status']}  {one.get('reason', '')}{said}  ({since} ago)")
    lines.append("Events:" if events else "Events:     none")
    for event in events:
        when = age(event.get("lastTimestamp") or event.get("eventTime") or "", now=now)
        lines.append(f"  {when:>4}  {event.get('type', '')}  {event.get('reason', '')}  {event.get('message', '')}")
    return "\n".join(line.rstrip() for line in lines)
