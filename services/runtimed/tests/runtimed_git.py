"""A git server on loopback: git's own http-backend behind aiohttp, with doors that do not open."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

IDENTITY = {
    "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.org", "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.org", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull,
}  # fmt: skip


def git(folder: Path, *arguments: str, data: bytes | None = None) -> str:
    """Runs git as the author of a repository."""
    done = subprocess.run(
        ["git", "-c", "init.defaultBranch=main", *arguments],
        cwd=folder, env={**os.environ, **IDENTITY}, input=data, capture_output=True, check=True,
    )  # fmt: skip
    return done.stdout.decode().strip()


def commit(folder: Path, files: dict[str, bytes], *, links: dict[str, str] | None = None) -> str:
    """Commits exactly *files* and *links*; returns the commit's hash."""
    if not (folder / ".git").exists():
        folder.mkdir(parents=True, exist_ok=True)
        git(folder, "init", "--quiet")
    git(folder, "read-tree", "--empty")
    for mode, entries in (("100644", files), ("120000", {k: v.encode() for k, v in (links or {}).items()})):
        for path, content in entries.items():
            name = git(folder, "hash-object", "-w", "--stdin", data=content)
            kind = "100755" if mode == "100644" and content.startswith(b"#!") else mode
            git(folder, "update-index", "--add", "--cacheinfo", f"{kind},{name},{path}")
    return commit_tree(folder, git(folder, "write-tree"))


def commit_tree(folder: Path, tree: str) -> str:
    """Commits a tree as it is, and makes it the newest of the branch."""
    made = git(folder, "commit-tree", tree, "-m", "change")
    git(folder, "update-ref", "refs/heads/main", made)
    return made


@dataclass
class GitServer:
    """url: of what is served. asked: every path and query. headers: of each request."""

    url: str = ""
    asked: list[str] = field(default_factory=list)


@asynccontextmanager
async def serving_git(root: Path) -> AsyncIterator[GitServer]:
    """Serves the repositories below *root*; `/private/…` asks for credentials, `/slow/…` never answers."""
    server, end = GitServer(), asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        server.asked.append(request.path_qs)
        if request.path.startswith("/private/"):
            return web.Response(status=401, headers={"WWW-Authenticate": "Basic"})
        if request.path.startswith("/slow/"):
            await end.wait()
        environment = {
            **os.environ, **IDENTITY, "GIT_PROJECT_ROOT": str(root), "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": request.path, "QUERY_STRING": request.query_string, "REQUEST_METHOD": request.method,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""), "REMOTE_ADDR": "127.0.0.1",
        }  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            "git", "http-backend", env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        output, _ = await process.communicate(await request.read())
        head, _, body = output.partition(b"\r\n\r\n")
        lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        status = int(lines.pop("Status", "200").split()[0])
        return web.Response(status=status, headers=lines, body=body)

    app = web.Application(client_max_size=8 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        end.set()
        await runner.cleanup()
