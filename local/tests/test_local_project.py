"""What PATH means, what the screen says, and who holds a node."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from kruntimes.common.api.views import Lease, LeaseSpec
from kruntimes.local import manifests, project, screen
from kruntimes.local.node import claim, logs
from kruntimes.local.node.addresses import Addresses
from kruntimes.local.project import BadProject, Project, assemble, documents, read

RUN = """
apiVersion: kruntimes.io/v1alpha1
kind: Run
metadata: {name: named}
spec:
  runtime: python
  source: {inlinePath: named.py}
  mode: {function: {handler: named.handler}}
"""
INLINE = RUN.replace("inlinePath: named.py", "inlinePath: x.py, inline: x")
CONFIG = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"


def folder(path: Path, **files: str) -> Path:
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)
    return path


def named(found: Project) -> list[str]:
    return [f"{obj['kind']}/{obj['metadata']['name']}" for obj in found.objects]


def test_manifests_in_the_order_of_their_names_then_files_that_none_names(tmp_path: Path) -> None:
    found = read(
        folder(tmp_path, b__yaml=RUN, a__yml=CONFIG, named__py="x = 1\n", free__py="y\n", tool__sh="z\n", read__md="")
    )
    assert named(found) == ["ConfigMap/c", "Run/named", "Run/free", "Run/tool"]
    assert found.runs[0]["spec"]["source"] == {"inlinePath": "named.py", "inline": "x = 1\n"}
    assert found.runs[1]["spec"] == {
        "runtime": "python",
        "source": {"inline": "y\n", "inlinePath": "free.py"},
        "mode": {"function": {"handler": "free.handler"}},
        "retryPolicy": {
            "maxAttempts": 100,
            "backoff": "1s",
            "retryableReasons": ["RuntimePodLost", "FencedUnregistered", "RuntimeServerFailed"],
        },
    }
    assert found.runs[2]["spec"]["runtime"] == "bash"
    assert [obj["kind"] for obj in found.others] == ["ConfigMap"]


def test_a_path_may_be_one_file(tmp_path: Path) -> None:
    folder(tmp_path, one__yaml=RUN, named__py="x\n", My_Tool__py="y\n")
    assert named(read(tmp_path / "one.yaml")) == ["Run/named"]
    assert named(read(tmp_path / "My_Tool.py")) == ["Run/my-tool"]


@pytest.mark.parametrize("name", ["json__py", "class__py", "_x1__py", "a-b_c__sh", "2__sh"])
def test_names_of_files_that_can_be_loaded_are_taken(tmp_path: Path, name: str) -> None:
    assert len(read(folder(tmp_path, **{name: "x\n"})).runs) == 1


def test_two_runs_of_one_name_may_lie_in_two_namespaces(tmp_path: Path) -> None:
    other = INLINE.replace("name: named", "name: named, namespace: other")
    assert named(read(folder(tmp_path, x__yaml=other, named__py="x\n"))) == ["Run/named", "Run/named"]


def test_a_source_that_stands_in_the_manifest_is_left_as_it_is() -> None:
    run: dict[str, Any] = documents("x.yaml", RUN)[0]
    run["spec"]["source"]["inline"] = "own\n"
    assert assemble([run], sources={}, beside={}).runs[0]["spec"]["source"]["inline"] == "own\n"


def test_a_list_is_its_items() -> None:
    text = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: x}}\n---\n"
    assert [obj["metadata"]["name"] for obj in documents("x.yaml", text)] == ["x"]


@pytest.mark.parametrize(
    ("files", "path", "said"),
    [
        pytest.param({}, "missing", "no such file or folder", id="nothing-there"),
        pytest.param({"x__txt": ""}, "x.txt", r"takes \.yaml, \.py and \.sh", id="another-kind-of-file"),
        pytest.param({"x__yaml": "a: ["}, ".", r"x\.yaml, line 1: not YAML", id="not-yaml"),
        pytest.param({"x__yaml": "kind: Run"}, ".", "without apiVersion and kind", id="no-version"),
        pytest.param({"x__yaml": "kind: A\napiVersion: b"}, ".", r"a A without metadata\.name", id="no-name"),
        pytest.param({"x__yaml": RUN}, ".", r"names named\.py, which does not lie beside it", id="no-source"),
        pytest.param({"_.py": "x"}, ".", r"_\.py: no name for a Run", id="no-name-in-the-file's"),
        pytest.param({"my-handler__py": "x"}, "my-handler.py", r"my-handler\.py: .*identifier", id="not-a-module"),
        pytest.param({"2__py": "x"}, ".", r"2\.py: .*identifier.*no digit first; rename the file", id="a-digit-first"),
        pytest.param({"a b__py": "x"}, ".", r"a b\.py: .*identifier", id="a-space"),
        pytest.param({"a__b__py": "x"}, ".", r"a\.b\.py: .*identifier", id="a-module-in-a-package"),
        pytest.param({"größe__py": "x"}, ".", r"größe\.py: .*ASCII letters", id="not-ascii"),
        pytest.param({"a b__sh": "x"}, ".", r"a b\.sh: .*letters, digits, _ and -", id="not-a-bash-file"),
        pytest.param({"kruntimes__py": "x"}, ".", r"kruntimes\.py: .*from the platform", id="our-module"),
        pytest.param({"time__py": "x"}, ".", r"time\.py: Python has a module time of its own", id="builtin"),
        pytest.param({"os__py": "x"}, ".", r"os\.py: Python has a module os of its own", id="frozen"),
        pytest.param(
            {"a__py": "x", "a__sh": "y"},
            ".",
            r"a\.py and a\.sh both give the Run a; rename",
            id="one-name-of-two-files",
        ),
        pytest.param(
            {"x__yaml": RUN, "named__py": "x", "Named__sh": "y"},
            ".",
            r"named\.py and Named\.sh both give the Run named",
            id="one-name-of-a-manifest-and-a-file",
        ),
        pytest.param(
            {"x__yaml": INLINE, "named__sh": "y"},
            ".",
            r"a manifest and named\.sh both give the Run named",
            id="one-name-of-an-inline-source-and-a-file",
        ),
    ],
)
def test_what_cannot_be_applied_is_a_sentence(tmp_path: Path, files: dict[str, str], path: str, said: str) -> None:
    with pytest.raises(BadProject, match=said):
        read(folder(tmp_path, **files) / path)


def test_the_ready_screen_has_a_line_that_a_shell_reads_back(tmp_path: Path) -> None:
    function = screen.Function("hello", "default", "python", "https://127.77.1.1:8443/v1/x:invoke")
    facts = screen.Facts(
        seconds=6.25, gateway="https://127.77.1.1:8443", api="https://127.77.1.1:6443",
        runtimes=[("python", 2, 2)], functions=[function],
        ca_file=tmp_path / "a b" / "ca.crt", token_file=tmp_path / "token", logs=tmp_path, kubeconfig=tmp_path / "k",
    )  # fmt: skip
    text = screen.ready(facts)
    assert text.splitlines()[0].startswith("krt dev is ready after 6.2 s")
    line = next(line for line in text.splitlines() if line.startswith("curl "))
    words = shlex.split(line)
    assert words[words.index("--cacert") + 1] == str(tmp_path / "a b" / "ca.crt")
    assert words[-1] == function.url
    assert '{"name": "you"}' in words


def test_without_a_function_the_screen_says_how_to_declare_one(tmp_path: Path) -> None:
    facts = screen.Facts(
        seconds=1, gateway="g", api="a", runtimes=[], functions=[], ca_file=tmp_path, token_file=tmp_path,
        logs=tmp_path, kubeconfig=tmp_path,
    )  # fmt: skip
    assert "krt run FILE" in screen.ready(facts)


ME = claim.Holder("boot", 10, "100")


@pytest.mark.parametrize(
    ("identity", "age", "ticks", "expected"),
    [
        pytest.param("boot/11/200", 99.0, "200", True, id="alive-here"),
        pytest.param("boot/11/200", 1.0, "", False, id="dead-here"),
        pytest.param("boot/11/200", 1.0, "300", False, id="its-pid-is-another-process-now"),
        pytest.param("other/11/200", 1.0, "", True, id="renewed-elsewhere"),
        pytest.param("other/11/200", 60.0, "", False, id="silent-elsewhere"),
        pytest.param(str(ME), 1.0, "100", False, id="myself"),
        pytest.param("", 1.0, "", False, id="nobody"),
        pytest.param("a-kubelet", 1.0, "", False, id="not-one-of-us"),
    ],
)
def test_who_holds_a_node(identity: str, age: float, ticks: str, expected: bool) -> None:
    lease = Lease(spec=LeaseSpec(holder_identity=identity))
    assert claim.held(lease, me=ME, age=age, started=lambda _: ticks) is expected


@pytest.mark.parametrize(
    ("lines", "expected"), [(None, "a\nbb\nccc\n"), (0, ""), (1, "ccc\n"), (2, "bb\nccc\n"), (9, "a\nbb\nccc\n")]
)
def test_the_last_lines_of_a_log(tmp_path: Path, lines: int | None, expected: str) -> None:
    file = tmp_path / "log"
    file.write_text("a\nbb\nccc\n")
    assert file.read_text()[logs.tail_start(file, lines) :] == expected


def test_two_instances_have_different_networks() -> None:
    class InOrder:
        def shuffle(self, _: list[int]) -> None:
            """Leaves the order as it is, so that both want the same network first."""

    one = Addresses.take(draw=InOrder())  # type: ignore[arg-type]
    other = Addresses.take(draw=InOrder())  # type: ignore[arg-type]
    try:
        assert one.gateway != other.gateway
        first = one.allocate()
        assert first not in (one.gateway, one.router, other.allocate())
        one.release(first)
        assert one.allocate() != first
    finally:
        one.close()
        other.close()


def test_the_services_are_told_where_everything_is(tmp_path: Path) -> None:
    given = manifests.Installation(
        address="127.77.1.1", router_address="127.77.1.2", port=8443, url="https://127.77.1.1:8443",
        names=("127.77.1.1", "localhost"), gateway_dir=tmp_path,
    )  # fmt: skip
    gateway = manifests.gateway(given)
    authz = gateway["spec"]["initContainers"][0]
    env = {one["name"]: one.get("value") for one in authz["env"]}
    assert env["KRUNTIMES_ADS_ADDRESS"] == "127.77.1.2:18000"
    assert env["KRUNTIMES_BIND_ADDRESS"] == "127.77.1.1"
    assert gateway["spec"]["automountServiceAccountToken"] is False
    envoy = gateway["spec"]["containers"][0]
    assert "kruntimes-token" not in [mount["name"] for mount in envoy.get("volumeMounts", [])]
    assert [runtime["metadata"]["name"] for runtime in manifests.runtimes()] == ["python", "bash"]


def test_only_runs_of_ours_are_runs() -> None:
    assert project.is_run({"kind": "Run", "apiVersion": "kruntimes.io/v1alpha1"})
    assert not project.is_run({"kind": "Run", "apiVersion": "tekton.dev/v1"})
