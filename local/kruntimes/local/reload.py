"""Puts a new Run in the place of one whose file has changed (design §10).

Specifications are immutable, so a change is another Run, under a numbered name; the old one serves until the new one
is Ready, and goes then. When the one that serves has ended, any save of the file brings another. Both carry the first
one's name as label `kruntimes.io/dev-name`, by which krt finds the one that serves. Whatever cannot take the old one's
place leaves it as it is, and is told in a sentence.
"""

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kruntimes.common import clock
from kruntimes.common.api.names import NAME_LABEL
from kruntimes.common.api.phases import TERMINAL
from kruntimes.common.api.views import Run
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import AlreadyExists, ApiError, Missing
from kruntimes.common.kube.transport import Kube
from kruntimes.local import syntax
from kruntimes.local.project import Source

LOOK_SECONDS = 0.2
"""Between two looks at a file: at once for a person, and a microsecond of stat() for the machine."""
GONE_LOOKS = 10
"""An editor that writes a file anew leaves it missing for less than these two seconds."""
POLL_SECONDS = 0.1
READY_SECONDS = 60.0
"""A warm Pod takes a function in a second; what takes longer than this is told and given up."""
_ATTEMPTS = re.compile(r"^attempt \d+ of \d+: \w+: ")
MAX_NAMES = 1000
"""Names that are tried for one new Run; more of them taken means that something else makes Runs of this name."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What stat() says of a file; it differs whenever the content may."""

    inode: int
    size: int
    changed: int

    @classmethod
    def of(cls, file: Path) -> "Stamp | None":
        """Of *file* now; None where there is no file, as between an editor's two steps."""
        try:
            seen = os.stat(file)
        except OSError:
            return None
        return cls(seen.st_ino, seen.st_size, seen.st_mtime_ns)


@dataclass(slots=True)
class File:
    """One file, asked again and again whether its text is another. text: what was last given out."""

    path: Path
    text: str | None
    _before: Stamp | None = None
    _read: Stamp | None = None
    _missed: int = 0

    def look(self) -> str | None:
        """The new text, once; None while it is what it was, or is still being written.

        A text is read when two looks in a row saw one stamp. Raises ValueError, once, where it is not UTF-8 or is
        gone for good.
        """
        before, self._before = self._before, Stamp.of(self.path)
        self._missed = self._missed + 1 if self._before is None else 0
        if self._missed == GONE_LOOKS:
            raise ValueError(f"{self.path.name} is gone")
        if self._before is None or self._before != before or self._before == self._read:
            return None
        try:
            data = self.path.read_bytes()
        except OSError:
            return None
        self._read = self._before
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"{self.path.name} is not UTF-8") from None
        if text == self.text:
            return None
        self.text = text
        return text

    def forget(self) -> None:
        """Lets the next save give the text out, whatever it is."""
        self.text = None


def ended(run: Run, *, file: str = "") -> str:
    """What a person is told of a function that has ended by itself, and what to do. file: what it is made of."""
    do = f"save {file} again" if file else "delete it and declare it again (krt delete, krt run)"
    return f"Run {run.metadata.name} ended as {run.status.phase}: {reason(run)}\n  to have it back: {do}"


def successor(obj: dict[str, Any], *, text: str, number: int) -> dict[str, Any]:
    """The Run that takes the place of *obj*, with *text* for its source."""
    meta, spec = obj["metadata"], obj["spec"]
    name = meta["name"]
    return obj | {
        "metadata": meta | {"name": f"{name}-{number}", "labels": (meta.get("labels") or {}) | {NAME_LABEL: name}},
        "spec": spec | {"source": spec["source"] | {"inline": text}},
    }


def reason(run: Run) -> str:
    """Why *run* has ended, in one line: without the count of attempts before it and the traceback after it."""
    said = _ATTEMPTS.sub("", run.status.message).strip()
    return said.splitlines()[0] if said else str(run.status.phase)


class Superseded(Exception):
    """The file has changed again before its Run was Ready."""


class NoSuccessor(Exception):
    """The new Run cannot take the old one's place; the message says why."""


@dataclass(kw_only=True)
class Reloader:
    """Follows the files of Runs, and tells of each Run that ends.

    say: a line for the person; replaced: gets the source's key and who serves now. others: Runs, `namespace/name`,
    that were declared without a file. runs: every Run as it stands, a live store.
    """

    kube: Kube
    runs: Mapping[str, Run]
    others: Sequence[str] = ()
    say: Callable[[str], None]
    replaced: Callable[[str, Run], None]
    sources: Sequence[Source]
    _numbers: dict[str, int] = field(default_factory=dict)

    async def run(self) -> None:
        """Follows them until cancelled."""
        async with asyncio.TaskGroup() as group:
            for source in self.sources:
                group.create_task(self._follow(source))
            group.create_task(self._tell_ends())

    async def _tell_ends(self) -> None:
        """Tells of each Run without a file that has ended, once."""
        told: set[str] = set()
        while True:
            for key in self.others:
                run = self._ended(key)
                if run is not None and run.metadata.uid not in told:
                    told.add(run.metadata.uid)
                    self.say(ended(run))
            await asyncio.sleep(LOOK_SECONDS)

    def _ended(self, key: str) -> Run | None:
        run = self.runs.get(key)
        return run if run is not None and run.status.phase in TERMINAL else None

    async def _follow(self, source: Source) -> None:
        namespace, _, name = source.key.partition("/")
        file = File(source.file, source.run["spec"]["source"]["inline"])
        serving, served, text = name, file.text, None
        while True:
            over = self._ended(f"{namespace}/{serving}") if served is not None else None
            if over is not None:
                self.say(ended(over, file=source.file.name))
                served = None
                file.forget()
            before = f"{serving} serves as before" if served is not None else f"{serving} is over as before"
            try:
                text = text if text is not None else file.look()
                if text is None:
                    await asyncio.sleep(LOOK_SECONDS)
                    continue
                given, text = text, None
                if given == served:  # it was spoilt, and mended again
                    self.say(f"{source.file.name} is again what {serving} serves")
                    continue
                wrong = await asyncio.to_thread(syntax.trouble, source.file.name, given)
                if wrong is not None:
                    raise NoSuccessor(wrong)
                began = clock.monotonic()
                made = await self._replace(source, given, file)
            except Superseded as newer:
                text = str(newer)
            except (NoSuccessor, ValueError) as error:
                self.say(f"{error}\n  {before}")
            except ApiError as error:
                self.say(f"{source.file.name}: {error.message}\n  {before}")
            else:
                old, serving, served = serving, made.metadata.name, given
                took = clock.monotonic() - began
                self.say(f"{source.file.name} changed: {serving} is Ready in the place of {old} ({took:.1f} s)")
                self.replaced(source.key, made)
                await self._delete(namespace, old)

    async def _replace(self, source: Source, text: str, file: File) -> Run:
        """Declares the new Run and returns it when it is Ready. Nothing of it is left where this raises."""
        made = await self._create(source, text)
        namespace, name = made.metadata.namespace, made.metadata.name
        try:
            return await self._ready(namespace, name, file)
        except BaseException:
            await self._delete(namespace, name)
            raise

    async def _create(self, source: Source, text: str) -> Run:
        namespace, _, name = source.key.partition("/")
        for _ in range(MAX_NAMES):
            number = self._numbers[source.key] = self._numbers.get(source.key, 1) + 1
            obj = successor(source.run, text=text, number=number)
            with suppress(AlreadyExists):
                return await self.kube.create(paths.runs(namespace), obj, Run)
        raise NoSuccessor(f"{source.file.name}: every name from {name}-2 on is taken")

    async def _ready(self, namespace: str, name: str, file: File) -> Run:
        end = clock.monotonic() + READY_SECONDS
        while clock.monotonic() < end:
            try:
                found = await self.kube.get(paths.runs(namespace, name), Run)
            except Missing:
                raise NoSuccessor(f"Run {name} was deleted before it was Ready") from None
            if found.ready:
                return found
            if found.status.phase in TERMINAL:
                raise NoSuccessor(f"{file.path.name}: {reason(found)}")
            newer = file.look()
            if newer is not None:
                raise Superseded(newer)
            await asyncio.sleep(POLL_SECONDS)
        raise NoSuccessor(f"{file.path.name}: Run {name} is not Ready after {READY_SECONDS:.0f} s")

    async def _delete(self, namespace: str, name: str) -> None:
        """Asks for the deletion; the platform lets calls in flight end."""
        try:
            await self.kube.delete(paths.runs(namespace, name))
        except Missing:
            return
        except ApiError as error:
            self.say(f"Run {name} is not deleted: {error.message}")
