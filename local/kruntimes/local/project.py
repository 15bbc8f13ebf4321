"""What `krt dev PATH` applies: manifests as they stand, and Runs made from files that no manifest names (design §10).

`read` looks at the disk; the rest is pure, but for `bash -n`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import BuiltinImporter, FrozenImporter
from pathlib import Path
from typing import Any

import yaml

from kruntimes.common.api.names import API_VERSION
from kruntimes.common.api.reasons import Reason
from kruntimes.common.errors import Terminal
from kruntimes.local import syntax

RUNTIMES = {".py": "python", ".sh": "bash"}
HANDLER = "handler"
"""The function that a file without a manifest is expected to have."""
ATTEMPTS = 100
"""As many as the API allows: on a laptop a function that was asked for stays until `krt dev` ends."""
OUTLIVED = (Reason.RUNTIME_POD_LOST, Reason.FENCED_UNREGISTERED, Reason.RUNTIME_SERVER_FAILED)
"""What goes wrong around a function, and not with it: code that cannot be registered is told of at once."""
OURS = "kruntimes"
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BASH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
"""What a Runtime takes for the module, or the file, of a handler."""


class BadProject(Terminal):
    """PATH cannot be applied; the message is a sentence that names the file."""


@dataclass(frozen=True, slots=True)
class Source:
    """A Run, complete, and the file whose text is its source."""

    run: dict[str, Any]
    file: Path

    @property
    def key(self) -> str:
        """`namespace/name` of the Run, in the namespace `default` where it names none."""
        meta = self.run["metadata"]
        return f"{meta.get('namespace') or 'default'}/{meta['name']}"


@dataclass(frozen=True, slots=True)
class Project:
    """Objects to apply, in order, and those of them whose source is a file."""

    objects: tuple[dict[str, Any], ...]
    sources: tuple[Source, ...] = ()

    @property
    def runs(self) -> tuple[dict[str, Any], ...]:
        """The Runs among them."""
        return tuple(o for o in self.objects if is_run(o))

    @property
    def others(self) -> tuple[dict[str, Any], ...]:
        """Everything else."""
        return tuple(o for o in self.objects if not is_run(o))


def is_run(obj: Mapping[str, Any]) -> bool:
    """Whether *obj* is one of our Runs."""
    return obj.get("kind") == "Run" and str(obj.get("apiVersion", "")).startswith("kruntimes.io/")


def read(path: Path) -> Project:
    """Reads a folder (its files, not those of folders in it) or one file. Raises BadProject."""
    if path.is_dir():
        files = sorted(entry for entry in path.iterdir() if entry.is_file() and not entry.name.startswith("."))
    elif path.is_file():
        files = [path]
    else:
        raise BadProject(f"{path}: no such file or folder")
    manifests = [obj for file in files if file.suffix in (".yaml", ".yml") for obj in documents(file.name, _text(file))]
    beside = {f.name: _text(f) for f in path.iterdir() if f.suffix in RUNTIMES} if path.is_dir() else {}
    sources = {f.name: _text(f) for f in files if f.suffix in RUNTIMES}
    if not manifests and not sources and path.is_file():
        raise BadProject(f"{path}: krt dev takes .yaml, .py and .sh")
    if path.is_file() and manifests:
        beside = {f.name: _text(f) for f in path.parent.iterdir() if f.is_file() and f.suffix in RUNTIMES}
    folder = path if path.is_dir() else path.parent
    return assemble(manifests, sources=sources, beside=beside or sources, folder=folder)


def documents(name: str, text: str) -> list[dict[str, Any]]:
    """The objects of one YAML file; raises BadProject where it is not what kubectl would take."""
    try:
        found = [doc for doc in yaml.safe_load_all(text) if doc is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise BadProject(f"{name}{line}: not YAML: {getattr(error, 'problem', error)}") from None
    objects: list[dict[str, Any]] = []
    for doc in found:
        items = doc.get("items", []) if isinstance(doc, dict) and doc.get("kind") == "List" else [doc]
        for item in items:
            if not isinstance(item, dict) or not item.get("kind") or not item.get("apiVersion"):
                raise BadProject(f"{name}: an object without apiVersion and kind")
            if not (item.get("metadata") or {}).get("name"):
                raise BadProject(f"{name}: a {item['kind']} without metadata.name")
            objects.append(item)
    return objects


def assemble(
    manifests: Sequence[Mapping[str, Any]],
    *,
    sources: Mapping[str, str],
    beside: Mapping[str, str],
    folder: Path = Path(),
) -> Project:
    """Puts files into the Runs that name them, and makes a Run of every source that none names.

    A function Run whose `source` has an inlinePath and no inline gets the file of that name from *beside*.
    folder: where all of them lie. Raises BadProject, also for a file that could not be loaded.
    """
    objects: list[dict[str, Any]] = []
    files: list[Source] = []
    named: set[str] = set()
    for manifest in manifests:
        obj = dict(manifest)
        if is_run(obj):
            spec = dict(obj.get("spec") or {})
            source = dict(spec.get("source") or {})
            where = str(source.get("inlinePath", ""))
            named.add(where)
            if where and "inline" not in source and "repoURL" not in source:
                if where not in beside:
                    raise BadProject(f"Run {obj['metadata']['name']} names {where}, which does not lie beside it")
                obj["spec"] = spec | {"source": source | {"inline": beside[where]}}
                files.append(Source(obj, folder / where))
        objects.append(obj)
    for name, text in sources.items():
        if name not in named:
            objects.append(run_of(name, text))
            files.append(Source(objects[-1], folder / name))
    _distinct(objects, files)
    for one in files:
        wrong = syntax.trouble(one.file.name, one.run["spec"]["source"]["inline"])
        if wrong is not None:
            raise BadProject(wrong)
    return Project(tuple(objects), tuple(files))


def run_of(file: str, text: str) -> dict[str, Any]:
    """The Run of a file without a manifest: its name is the file's, its handler the function `handler`."""
    stem, suffix = Path(file).stem, Path(file).suffix
    wrong = unusable(file)
    if wrong is not None:
        raise BadProject(f"{file}: {wrong}; rename the file")
    name = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:63].strip("-")
    if not name:
        raise BadProject(f"{file}: no name for a Run can be made of it")
    return {
        "apiVersion": API_VERSION,
        "kind": "Run",
        "metadata": {"name": name},
        "spec": {
            "runtime": RUNTIMES[suffix],
            "source": {"inline": text, "inlinePath": file},
            "mode": {"function": {"handler": f"{stem}.{HANDLER}"}},
            "retryPolicy": {"maxAttempts": ATTEMPTS, "backoff": "1s", "retryableReasons": list(OUTLIVED)},
        },
    }


def unusable(file: str) -> str | None:
    """Why no handler of *file* can be named, for the name that the file has; None where one can."""
    stem, suffix = Path(file).stem, Path(file).suffix
    if suffix == ".sh":
        return None if _BASH.fullmatch(stem) else "a Bash function's file has a name of letters, digits, _ and -"
    if not _MODULE.fullmatch(stem):
        return "the name of a Python module is an identifier: ASCII letters, digits and _, and no digit first"
    if stem == OURS:
        return f"{OURS} is the module that functions get from the platform"
    if BuiltinImporter.find_spec(stem) is not None or FrozenImporter.find_spec(stem) is not None:
        return f"Python has a module {stem} of its own, and imports that one whatever lies beside it"
    return None


def _distinct(objects: Sequence[Mapping[str, Any]], files: Sequence[Source]) -> None:
    """Raises BadProject where two Runs have one name: only one of them could be."""
    places = {id(one.run): one.file.name for one in files}
    seen: dict[str, str] = {}
    for obj in objects:
        if not is_run(obj):
            continue
        meta = obj["metadata"]
        key, place = f"{meta.get('namespace') or 'default'}/{meta['name']}", places.get(id(obj), "a manifest")
        if key in seen:
            raise BadProject(f"{seen[key]} and {place} both give the Run {meta['name']}; rename one of them")
        seen[key] = place


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadProject(f"{file}: {error}") from None
