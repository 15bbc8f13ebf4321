"""Fails when the committed generated code is not what the .proto files generate."""

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Generates into a temporary folder and compares byte by byte; returns the exit status."""
    protos = sorted(HERE.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        outputs = [f"--{kind}_out={folder}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{HERE}", *outputs, *protos], check=True)
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
