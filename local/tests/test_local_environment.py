"""What a process is started with: `$(NAME)`, fieldRefs, and mount paths that exist on this machine."""

import pytest

from kruntimes.local.node.environment import CannotRun, Facts, command, expand, field, rewrite, variables
from kruntimes.local.node.pods import Container, EnvVar, FieldRef, KeyRef, NodePod, NodePodMeta, ValueFrom

MOUNTS = {"/run/kruntimes": "/t/v/sockets", "/workspace": "/t/v/workspace", "/run/kruntimes/deep": "/t/v/deep"}
META = NodePodMeta(name="p", namespace="ns", uid="u", labels={"runtime": "python"}, annotations={"a/b": "c"})
FACTS = Facts(pod=NodePod(metadata=META), pod_ip="127.77.0.2", host_ip="127.0.0.1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("/workspace", "/t/v/workspace", id="the-path-itself"),
        pytest.param("/workspace/a/b", "/t/v/workspace/a/b", id="below-it"),
        pytest.param("/workspaces", "/workspaces", id="a-longer-name"),
        pytest.param("/my/workspace", "/my/workspace", id="the-end-of-another-path"),
        pytest.param("unix:///run/kruntimes/executor.sock", "unix:///t/v/sockets/executor.sock", id="a-unix-address"),
        pytest.param("--folder=/workspace", "--folder=/t/v/workspace", id="an-option"),
        pytest.param("/workspace:/run/kruntimes", "/t/v/workspace:/t/v/sockets", id="a-list-of-paths"),
        pytest.param("/run/kruntimes/deep/x", "/t/v/deep/x", id="the-longest-mount-wins"),
        pytest.param("https://host/workspace", "https://host/workspace", id="a-url-of-a-name"),
        pytest.param("https://127.0.0.1:9/workspace", "https://127.0.0.1:9/workspace", id="a-url-with-a-port"),
        pytest.param(
            "cat '/workspace/x y'; ls /workspace", "cat '/t/v/workspace/x y'; ls /t/v/workspace", id="a-script"
        ),
        pytest.param("", "", id="nothing"),
    ],
)
def test_mount_paths_become_folders(text: str, expected: str) -> None:
    assert rewrite(text, MOUNTS) == expected


def test_what_was_put_in_is_not_read_again() -> None:
    assert rewrite("/a/x", {"/a": "/b", "/b": "/c"}) == "/b/x"


def test_without_mounts_nothing_changes() -> None:
    assert rewrite("/workspace", {}) == "/workspace"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("at $(IP):80", "at 1.2.3.4:80", id="known"),
        pytest.param("at $(NONE)", "at $(NONE)", id="unknown-is-kept"),
        pytest.param("$$(IP)", "$(IP)", id="escaped"),
        pytest.param("$$$(IP)", "$1.2.3.4", id="a-dollar-before-it"),
        pytest.param("$IP ${IP}", "$IP ${IP}", id="the-shell's-own"),
    ],
)
def test_references_are_expanded_as_kubernetes_does(text: str, expected: str) -> None:
    assert expand(text, {"IP": "1.2.3.4"}) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("metadata.name", "p", id="name"),
        pytest.param("metadata.namespace", "ns", id="namespace"),
        pytest.param("metadata.uid", "u", id="uid"),
        pytest.param("metadata.labels['runtime']", "python", id="label"),
        pytest.param("metadata.annotations['a/b']", "c", id="annotation"),
        pytest.param("metadata.labels['none']", "", id="no-such-label"),
        pytest.param("status.podIP", "127.77.0.2", id="ip"),
        pytest.param("status.hostIP", "127.0.0.1", id="host"),
        pytest.param("spec.serviceAccountName", "default", id="account"),
    ],
)
def test_field_references(path: str, expected: str) -> None:
    assert field(FieldRef(field_path=path), FACTS) == expected


def test_a_field_that_does_not_exist_is_named() -> None:
    with pytest.raises(CannotRun, match=r"status\.nothing"):
        field(FieldRef(field_path="status.nothing"), FACTS)


def test_variables_see_those_before_them_and_optional_ones_may_be_absent() -> None:
    given = (
        EnvVar(name="IP", value_from=ValueFrom(field_ref=FieldRef(field_path="status.podIP"))),
        EnvVar(name="URL", value="http://$(IP)$(LATER)"),
        EnvVar(name="LATER", value="x"),
        EnvVar(name="KEY", value_from=ValueFrom(config_map_key_ref=KeyRef(name="c", key="k"))),
        EnvVar(name="GONE", value_from=ValueFrom(secret_key_ref=KeyRef(name="s", key="k", optional=True))),
        EnvVar(name="PATH", value="/own"),
    )
    found = variables(
        given,
        facts=FACTS,
        lookup=lambda v: "from-map" if v.name == "KEY" else None,
        base={"PATH": "/bin", "HOME": "/h"},
    )
    assert found == {
        "PATH": "/own", "HOME": "/h", "IP": "127.77.0.2", "URL": "http://127.77.0.2$(LATER)", "LATER": "x",
        "KEY": "from-map",
    }  # fmt: skip


def test_a_source_that_is_not_known_is_refused() -> None:
    with pytest.raises(CannotRun, match="environment variable X"):
        variables([EnvVar(name="X", value_from=ValueFrom())], facts=FACTS, lookup=lambda _: None, base={})


def test_command_and_arguments_are_one_list() -> None:
    container = Container(name="c", command=("run", "$(A)"), args=("--to", "$(B)"))
    assert command(container, {"A": "1"}) == ["run", "1", "--to", "$(B)"]
    with pytest.raises(CannotRun, match="names no command"):
        command(Container(name="c", image="i"), {})
