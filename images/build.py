"""Builds the images and saves each as FOLDER/NAME.tar, a docker-archive under the name that the chart asks for.

    python images/build.py FOLDER

BUILDER names docker, podman or buildah; unset, the first that works is taken. BUILD_FLAGS: more of its flags. For
buildah they are such that it works inside a container too, without namespaces or a network of its own.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "charts" / "kruntimes"
DEFAULT_FLAGS = {"buildah": "--isolation chroot --network host"}


def names() -> dict[str, str]:
    """What the chart calls each image, by the folder of its Dockerfile."""
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    version: str = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    ours, envoy = values["image"], values["gateway"]["envoy"]["image"]
    return {
        "kruntimes": f"{ours['repository']}:{ours['tag'] or version}",
        "envoy": f"{envoy['repository']}:{envoy['tag']}",
    }


def builder() -> str:
    """The program that builds. Ends with a sentence where there is none."""
    if chosen := os.environ.get("BUILDER"):
        return chosen
    for program, check in (("docker", ["info"]), ("podman", ["info"]), ("buildah", ["version"])):
        if shutil.which(program) and not subprocess.run([program, *check], capture_output=True).returncode:
            return program
    sys.exit("images: none of docker, podman and buildah works here; BUILDER names another program like them")


def commands(program: str, *, flags: list[str], folder: str, name: str, archive: Path) -> list[list[str]]:
    """What builds one image and saves it."""
    build = [program, "bud" if program == "buildah" else "build", *flags, "-f", f"images/{folder}/Dockerfile"]
    saves = {
        "buildah": ["push", "-q", name, f"docker-archive:{archive}:{name}"],
        "podman": ["save", "--format", "docker-archive", "-o", str(archive), name],
    }
    return [[*build, "-t", name, "."], [program, *saves.get(program, ["save", "-o", str(archive), name])]]


def main(folder: Path) -> None:
    """Builds and saves all; ends with the status of what failed."""
    program = builder()
    flags = shlex.split(os.environ.get("BUILD_FLAGS", DEFAULT_FLAGS.get(program, "")))
    folder.mkdir(parents=True, exist_ok=True)
    for image, name in names().items():
        archive = (folder / f"{image}.tar").resolve()
        archive.unlink(missing_ok=True)
        for command in commands(program, flags=flags, folder=image, name=name, archive=archive):
            done = subprocess.run(command, cwd=ROOT)
            if done.returncode:
                sys.exit(f"images: {shlex.join(command)} ended with {done.returncode}")
        sys.stdout.write(f"{name}  {archive}  {archive.stat().st_size >> 20} MiB\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
