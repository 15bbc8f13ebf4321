"""What a commit holds, checked before any of it is written (design §4, "source"). Pure: git's listing in, entries out.

Nothing of a repository is believed: a path must stay below the folder, a link must stay in the tree, and neither the
number of files nor their size may pass a bound. Submodules are refused, since they would be other repositories.
"""

from dataclasses import dataclass

from kruntimes.common.errors import Terminal

MAX_FILES = 10_000
"""Files and links of one commit: a program, not an archive."""
MAX_TREE_BYTES = 64 * 1024 * 1024
"""All of its files together; the workspace is shared by every Run of the Pod."""
MAX_PATH_BYTES = 4096
MAX_SHOWN = 120
"""Of a path this much stands in a message."""
_FILES = {b"100644": 0o644, b"100664": 0o644, b"100755": 0o755}
_LINK, _SUBMODULE = b"120000", b"160000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One file or link. path: its segments. mode: of a file, None for a link. size: bytes."""

    path: tuple[bytes, ...]
    object: str
    size: int
    mode: int | None


def entries(listing: bytes) -> list[Entry]:
    """The entries of `git ls-tree -r -z -l --full-tree`, files before links. Raises Terminal for what may not be."""
    found: list[Entry] = []
    total = 0
    for line in filter(None, listing.split(b"\0")):
        head, _, path = line.partition(b"\t")
        mode, _, name, size = head.split()
        if mode == _SUBMODULE:
            raise Terminal(f"the repository has a submodule, {_shown(path)}: submodules are not supported")
        if mode != _LINK and mode not in _FILES:
            raise Terminal(f"the repository has an entry of an unknown kind, {_shown(path)}")
        entry = Entry(path=_checked(path), object=name.decode(), size=int(size), mode=_FILES.get(mode))
        total += entry.size
        found.append(entry)
        if len(found) > MAX_FILES:
            raise Terminal(f"the repository has more than {MAX_FILES} files")
        if total > MAX_TREE_BYTES:
            raise Terminal(f"the files of the repository have more than {MAX_TREE_BYTES} bytes")
    return sorted(found, key=lambda entry: entry.mode is None)


def link_target(entry: Entry, target: bytes) -> bytes:
    """*target* of the link *entry*, where it stays in the tree. Raises Terminal.

    `..` may stand at the beginning only, and no more often than the link lies deep: from a folder that is no link
    itself such a path cannot leave, whatever links it meets further down.
    """
    parts = target.split(b"/")
    up = 0
    while up < len(parts) and parts[up] == b"..":
        up += 1
    inside = up < len(entry.path) and b".." not in parts[up:]
    if not target or target.startswith(b"/") or len(target) > MAX_PATH_BYTES or b"\0" in target or not inside:
        raise Terminal(f"a link of the repository leads out of it: {_shown(b'/'.join(entry.path))}")
    return target


def _checked(path: bytes) -> tuple[bytes, ...]:
    parts = tuple(path.split(b"/"))
    if len(path) > MAX_PATH_BYTES or any(part in (b"", b".", b"..") or part.lower() == b".git" for part in parts):
        raise Terminal(f"the repository has a path that cannot be written: {_shown(path)}")
    return parts


def _shown(path: bytes) -> str:
    text = path[:MAX_SHOWN].decode("utf-8", "replace")
    return repr(text if len(path) <= MAX_SHOWN else text + "…")
