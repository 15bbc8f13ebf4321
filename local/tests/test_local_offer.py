"""The kubeconfig that `krt dev` offers to people."""

import stat
from pathlib import Path

import yaml

from kruntimes.local.control_plane import offer
from kruntimes.sdk import kubeconfig

PEM = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"


def test_it_acts_as_the_given_one_from_another_place_and_calls_with_the_token(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    ours.mkdir()
    for name in ("ca.crt", "me.crt", "me.key"):
        (theirs / name).write_text(PEM)
    (ours / "token").write_text("for calls\n")
    given = {
        "current-context": "a",
        "contexts": [{"name": "b", "context": {}}, {"name": "a", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443", "certificate-authority": "ca.crt"}}],
        "users": [{"name": "u", "user": {"client-certificate": "me.crt", "client-key": "me.key"}}],
    }
    (theirs / "config").write_text(yaml.safe_dump(given))

    offer(theirs / "config", ours / "kubeconfig", token_file=ours / "token")

    access = kubeconfig.load(ours / "kubeconfig")
    assert (access.server, access.ca_pem, access.certificate_pem, access.key_pem) == ("https://api:6443", PEM, PEM, PEM)
    assert (access.token(), access.call_token()) == (None, "for calls")
    assert stat.S_IMODE((ours / "kubeconfig").stat().st_mode) == 0o600
    assert yaml.safe_load((theirs / "config").read_text()) == given
