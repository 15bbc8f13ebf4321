"""The environment, read once and checked (design §13)."""

from pathlib import Path

import pytest

from kruntimes.common.api.settings import Settings, SettingsError


def test_an_empty_environment_has_the_defaults_of_the_design() -> None:
    settings = Settings.read({})
    assert (settings.default_timeout, settings.max_timeout, settings.trust_domain) == (60, 900, "cluster.local")
    assert (settings.authz_verb, settings.authz_group, settings.authz_resource) == ("get", "kruntimes.io", "runs")
    assert settings.workspace == Path("/workspace") and settings.executor_socket is None


def test_every_kind_of_value() -> None:
    settings = Settings.read(
        {
            "PATH": "/bin",
            "KRUNTIMES_NAMESPACE": "demo",
            "KRUNTIMES_GATEWAY_URL": "https://gateway.example.org:8443",
            "KRUNTIMES_GATEWAY_NAMES": "gateway, gateway.svc ,127.0.0.1,",
            "KRUNTIMES_EXECUTOR_SOCKET": "/run/kruntimes/executor.sock",
            "KRUNTIMES_RUNTIMED_PID": "42",
            "KRUNTIMES_DEFAULT_TIMEOUT": "2.5",
            "KRUNTIMES_MAX_TIMEOUT": "30",
            "KRUNTIMES_LOG_LEVEL": "DEBUG",
            "KRUNTIMES_TRUST_DOMAIN": "",
        }
    )
    assert settings.namespace == "demo" and settings.runtimed_pid == 42
    assert settings.gateway_names == ("gateway", "gateway.svc", "127.0.0.1")
    assert settings.executor_socket == Path("/run/kruntimes/executor.sock")
    assert (settings.default_timeout, settings.max_timeout) == (2.5, 30)
    assert settings.trust_domain == "cluster.local", "an empty value counts as absent"


@pytest.mark.parametrize(
    "name",
    ["GATEWAY_SERVICE_HOST", "GATEWAY_SERVICE_PORT", "GATEWAY_SERVICE_PORT_HTTPS", "GATEWAY_PORT",
     "GATEWAY_PORT_8443_TCP", "GATEWAY_PORT_8443_TCP_ADDR", "ROUTER_PORT_18000_TCP_PROTO"],
)  # fmt: skip
def test_what_kubernetes_adds_for_a_service_of_ours_is_no_setting(name: str) -> None:
    assert Settings.read({f"KRUNTIMES_{name}": "tcp://10.0.0.1:8443"}) == Settings()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("NAMSPACE", "demo", "KRUNTIMES_NAMSPACE is not a setting"),
        ("namespace", "demo", "KRUNTIMES_namespace is not a setting"),
        ("MAX_TIMEOUT", "soon", "KRUNTIMES_MAX_TIMEOUT: not a number of seconds"),
        ("MAX_TIMEOUT", "nan", "KRUNTIMES_MAX_TIMEOUT: not a number of seconds"),
        ("MAX_TIMEOUT", "1e3", "KRUNTIMES_MAX_TIMEOUT: not a number of seconds"),
        ("MAX_TIMEOUT", "-1", "KRUNTIMES_MAX_TIMEOUT: not a number of seconds"),
        ("MAX_TIMEOUT", "30", "KRUNTIMES_DEFAULT_TIMEOUT must lie above 0 and not above KRUNTIMES_MAX_TIMEOUT"),
        ("DEFAULT_TIMEOUT", "0", "KRUNTIMES_DEFAULT_TIMEOUT must lie above 0"),
        ("RUNTIMED_PID", "1.5", "KRUNTIMES_RUNTIMED_PID: not a whole number"),
        ("RUNTIMED_PID", "٤", "KRUNTIMES_RUNTIMED_PID: not a whole number"),
        ("GATEWAY_URL", "http://gateway", "KRUNTIMES_GATEWAY_URL must be https://HOST"),
        ("GATEWAY_URL", "https://gateway/", "KRUNTIMES_GATEWAY_URL must be https://HOST"),
        ("GATEWAY_URL", "https://gateway?x", "KRUNTIMES_GATEWAY_URL must be https://HOST"),
        ("LOG_LEVEL", "loud", "KRUNTIMES_LOG_LEVEL must be one of DEBUG, INFO"),
    ],
)
def test_a_wrong_value_ends_the_start_with_a_sentence(name: str, value: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Settings.read({f"KRUNTIMES_{name}": value})


def test_everything_that_is_missing_is_named_at_once() -> None:
    settings = Settings.read({"KRUNTIMES_NAMESPACE": "demo"})
    assert settings.require("namespace") is settings
    with pytest.raises(SettingsError, match="KRUNTIMES_POD_NAME, KRUNTIMES_POD_UID"):
        settings.require("namespace", "pod_name", "pod_uid")
