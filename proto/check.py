"""Fails when the committed generated code is not what the .proto files generate."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PLUGINS = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


def main() -> int:
    """Generates into a temporary folder and compares byte by byte; returns the exit status."""
    protos = sorted(HERE.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        outputs = [f"--{kind}_out={folder}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
        done = subprocess.run(
            [sys.executable, "-m", "grpc_tools.protoc", f"-I{HERE}", *outputs, *protos],
            env={**os.environ, "PATH": PLUGINS},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return done.returncode
        made = {path.relative_to(folder): path.read_bytes() for path in Path(folder).rglob("*_pb2*")}
    kept = {
        path.relative_to(HERE): path.read_bytes() for path in HERE.rglob("*_pb2*") if path.suffix in (".py", ".pyi")
    }
    stale = sorted(str(name) for name in made.keys() | kept.keys() if made.get(name) != kept.get(name))
    for name in stale:
        print(f"proto/{name} is not current: run make proto", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
