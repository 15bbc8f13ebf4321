"""What stands in a volume, by kind, and how files are replaced."""

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kruntimes.common.api.views import Meta
from kruntimes.local.node.environment import CannotRun, Facts
from kruntimes.local.node.pods import NodePod, NodePodMeta, TokenSource, Volume
from kruntimes.local.node.volumes import ConfigMap, NotThere, Secret, contents, write

FACTS = Facts(pod=NodePod(metadata=NodePodMeta(name="p", namespace="ns")), pod_ip="127.77.0.2", host_ip="127.0.0.1")
MAPS = {"ns/m": ConfigMap(metadata=Meta(name="m"), data={"a": "1", "b": "2"}, binary_data={"c": "AP8="})}
SECRETS = {"ns/s": Secret(data={"k": base64.b64encode(b"v").decode()})}
TOKENS = {TokenSource(path="token", expiration_seconds=600): "t0"}


def files(**source: Any) -> dict[str, bytes]:
    volume = msgspec.convert({"name": "v", **source}, Volume)
    return contents(volume, facts=FACTS, config_maps=MAPS, secrets=SECRETS, tokens=TOKENS)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param({"emptyDir": {}}, {}, id="empty"),
        pytest.param({"configMap": {"name": "m"}}, {"a": b"1", "b": b"2", "c": b"\0\xff"}, id="config-map"),
        pytest.param(
            {"configMap": {"name": "m", "items": [{"key": "a", "path": "deep/x"}]}}, {"deep/x": b"1"}, id="one-key"
        ),
        pytest.param({"configMap": {"name": "none", "optional": True}}, {}, id="optional-and-absent"),
        pytest.param({"secret": {"secretName": "s"}}, {"k": b"v"}, id="secret"),
        pytest.param(
            {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
            {"n": b"ns"},
            id="downward",
        ),
        pytest.param(
            {
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
                        {"configMap": {"name": "m", "items": [{"key": "a", "path": "ca.crt"}]}},
                        {"secret": {"name": "s"}},
                        {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                    ]
                }
            },
            {"token": b"t0", "ca.crt": b"1", "k": b"v", "n": b"p"},
            id="projected",
        ),
    ],
)
def test_what_stands_in_a_volume(source: dict[str, Any], expected: dict[str, bytes]) -> None:
    assert files(**source) == expected


@pytest.mark.parametrize(
    ("source", "error", "said"),
    [
        pytest.param({"configMap": {"name": "none"}}, NotThere, "ConfigMap none does not exist", id="no-map"),
        pytest.param({"secret": {"secretName": "none"}}, NotThere, "Secret none does not exist", id="no-secret"),
        pytest.param(
            {"configMap": {"name": "m", "items": [{"key": "z", "path": "z"}]}}, NotThere, "has no key z", id="no-key"
        ),
        pytest.param(
            {"projected": {"sources": [{"serviceAccountToken": {"path": "other"}}]}},
            NotThere,
            "no token",
            id="no-token",
        ),
        pytest.param({"projected": {"sources": [{}]}}, CannotRun, "of this kind", id="unknown-source"),
        pytest.param({"persistentVolumeClaim": {}}, CannotRun, "krt dev has emptyDir", id="unknown-volume"),
    ],
)
def test_what_is_missing_is_named(source: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        files(**source)


def test_files_are_replaced_and_unwanted_ones_go(tmp_path: Path) -> None:
    folder = tmp_path / "v"
    write(folder, {"a": b"1", "deep/b": b"2"})
    before = (folder / "a").stat().st_ino
    with open(folder / "deep" / "b", "rb") as held:
        write(folder, {"a": b"1", "deep/b": b"3"})
        assert held.read() == b"2"
    assert (folder / "a").stat().st_ino == before
    assert (folder / "deep" / "b").read_bytes() == b"3"
    assert oct((folder / "a").stat().st_mode & 0o777) == "0o600"
    write(folder, {"a": b"1"})
    assert [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()] == ["a"]
