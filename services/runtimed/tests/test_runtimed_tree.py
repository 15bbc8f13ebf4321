"""What of a commit may be written, and what may not."""

import pytest

from kruntimes.common.errors import Terminal
from kruntimes.runtimed import tree
from kruntimes.runtimed.tree import Entry, entries, link_target

SHA = "a" * 40


def line(path: str, *, mode: str = "100644", kind: str = "blob", size: object = 3) -> bytes:
    return f"{mode} {kind} {SHA} {size:>7}\t{path}".encode() + b"\0"


def test_files_come_before_links() -> None:
    listing = line("z", mode="120000") + line("a/b.py", mode="100755") + line("c", size=0)
    assert entries(listing) == [
        Entry(path=(b"a", b"b.py"), object=SHA, size=3, mode=0o755),
        Entry(path=(b"c",), object=SHA, size=0, mode=0o644),
        Entry(path=(b"z",), object=SHA, size=3, mode=None),
    ]
    assert entries(b"") == []


@pytest.mark.parametrize(
    ("listing", "message"),
    [
        pytest.param(line("sub", mode="160000", kind="commit", size="-"), "has a submodule, 'sub'", id="submodule"),
        pytest.param(line("x", mode="140000"), "unknown kind", id="kind"),
        pytest.param(line("../x"), "cannot be written: '../x'", id="parent"),
        pytest.param(line("a/../x"), "cannot be written", id="parent-within"),
        pytest.param(line("/x"), "cannot be written", id="absolute"),
        pytest.param(line("a//x"), "cannot be written", id="empty"),
        pytest.param(line(".git/config"), "cannot be written", id="git"),
        pytest.param(line("a/.GIT/hooks/x"), "cannot be written", id="git-in-capitals"),
        pytest.param(line("x" * 5000), "cannot be written", id="long"),
        pytest.param(line("a", size=tree.MAX_TREE_BYTES) + line("b", size=1), "more than 67108864 bytes", id="size"),
        pytest.param(line("a", size=0) * (tree.MAX_FILES + 1), "more than 10000 files", id="files"),
    ],
)
def test_refused(listing: bytes, message: str) -> None:
    with pytest.raises(Terminal, match=message.replace(".", r"\.")):
        entries(listing)


@pytest.mark.parametrize(
    ("path", "target", "stays"),
    [
        ("a/b/link", "c.py", True),
        ("a/b/link", "../c.py", True),
        ("a/b/link", "../../c/d", True),
        ("link", "a/b", True),
        ("link", ".", True),
        ("a/b/link", "../../../c", False),
        ("link", "..", False),
        ("link", "../x", False),
        ("link", "/etc/passwd", False),
        ("a/link", "d/../../../x", False),
        ("a/link", "d/..", False),
        ("link", "", False),
        ("link", "a\0b", False),
    ],
)
def test_links_stay_in_the_tree(path: str, target: str, stays: bool) -> None:
    entry = Entry(path=tuple(path.encode().split(b"/")), object=SHA, size=1, mode=None)
    if stays:
        assert link_target(entry, target.encode()) == target.encode()
    else:
        with pytest.raises(Terminal, match="leads out of it"):
            link_target(entry, target.encode())
