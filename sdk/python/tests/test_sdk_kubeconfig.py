"""Kubeconfigs as people have them."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kruntimes.sdk.errors import ConfigError
from kruntimes.sdk.kubeconfig import load

PEM = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"


def config(folder: Path, user: dict[str, Any], name: str = "config", **cluster: Any) -> Path:
    path = folder / name
    document = {
        "current-context": "a",
        "contexts": [
            {"name": "a", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
            {"name": "b", "context": {"cluster": "c", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443/", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_token_and_an_inline_ca(tmp_path: Path) -> None:
    data = base64.b64encode(PEM.encode()).decode()
    access = load(config(tmp_path, {"token": "t"}, **{"certificate-authority-data": data}))
    assert (access.server, access.namespace, access.ca_pem, access.token()) == ("https://api:6443", "team", PEM, "t")
    assert load(tmp_path / "config", context="b").namespace == "default"


def test_files_are_relative_to_the_kubeconfig_and_a_token_file_is_read_anew(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text(PEM)
    (tmp_path / "token").write_text("one\n")
    access = load(config(tmp_path, {"tokenFile": "token"}, **{"certificate-authority": "ca.crt"}))
    assert (access.ca_pem, access.token()) == (PEM, "one")
    (tmp_path / "token").write_text("two\n")
    assert access.token() == "two"


def test_a_client_certificate_has_no_token(tmp_path: Path) -> None:
    data = base64.b64encode(PEM.encode()).decode()
    access = load(config(tmp_path, {"client-certificate-data": data, "client-key-data": data}))
    assert (access.certificate_pem, access.key_pem, access.token()) == (PEM, PEM, None)


def test_a_plugin_is_asked_for_a_token(tmp_path: Path) -> None:
    answer = json.dumps({"status": {"token": "from-plugin"}})
    plugin = {"command": "sh", "args": ["-c", f"test -n \"$KUBERNETES_EXEC_INFO\" && echo '{answer}'"]}
    assert load(config(tmp_path, {"exec": plugin})).token() == "from-plugin"


def test_a_plugin_that_fails_is_named(tmp_path: Path) -> None:
    access = load(config(tmp_path, {"exec": {"command": "false"}}))
    with pytest.raises(ConfigError, match="'false' gave no token"):
        access.token()


def test_several_files_are_merged_and_the_first_wins(tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.write_text(yaml.safe_dump({"users": [{"name": "u", "user": {"token": "first"}}]}))
    second = config(tmp_path, {"token": "second"})
    access = load(environ={"KUBECONFIG": f"{tmp_path / 'missing'}:{first}:{second}"})
    assert access.token() == "first"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("[]", "not a kubeconfig", id="not-a-mapping"),
        pytest.param("{", "kubeconfig", id="not-yaml"),
        pytest.param("{}", "no current-context", id="no-context"),
        pytest.param("current-context: x", "there is no context 'x'", id="unknown-context"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load(path)


def test_none_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="set KUBECONFIG"):
        load(environ={})
    with pytest.raises(ConfigError, match="no such file"):
        load(tmp_path / "missing")


def test_a_context_may_name_the_token_that_functions_are_called_with(tmp_path: Path) -> None:
    path = config(tmp_path, {"token": "for the API"})
    assert load(path).call_token() == "for the API"
    document = yaml.safe_load(path.read_text())
    extension = {"name": "kruntimes.io/calls", "extension": {"tokenFile": "calls"}}
    document["contexts"][0]["context"]["extensions"] = [{"name": "another", "extension": {}}, extension]
    path.write_text(yaml.safe_dump(document))
    (tmp_path / "calls").write_text("for calls\n")
    access = load(path)
    assert (access.token(), access.call_token()) == ("for the API", "for calls")
    assert load(path, context="b").call_token() == "for the API"
