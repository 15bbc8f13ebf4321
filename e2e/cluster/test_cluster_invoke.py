"""Calls of a function from every place where a caller may be: outside, through a forwarded port, and in a Pod."""

import json
import uuid
from typing import Any

import httpx
from cluster.pods import running, until_ended
from cluster.release import NAMESPACE, Cluster
from support import Api, Gateway, path_of

ECHO = "def handler(event):\n    return {'got': event}\n"
CALLER = """
import json, ssl, sys, urllib.request
tls = ssl.create_default_context(cafile="/etc/kruntimes/ca.crt")
token = open("/var/run/secrets/kubernetes.io/serviceaccount/token").read()
headers = {"authorization": "Bearer " + token, "content-type": "application/json"}
request = urllib.request.Request(sys.argv[1], data=b'{"from": "a pod"}', headers=headers, method="POST")
answer = urllib.request.urlopen(request, context=tls, timeout=30)
print(json.dumps([answer.status, answer.headers["x-kruntime-outcome"], answer.read().decode()]))
"""


def test_from_outside_at_the_node_port(stack: Any, api: Api, gateway: Gateway) -> None:
    with api.function(ECHO) as run, gateway.client(http2=True) as client:
        url = run["status"]["endpoint"]["url"]
        assert url == gateway.url + path_of(run)
        answer = client.post(url, headers=gateway.headers(), json={"a": 1})
        assert (answer.status_code, answer.json()) == (200, {"got": {"a": 1}})


def test_through_a_forwarded_port(stack: Any, release: Cluster, api: Api, gateway: Gateway) -> None:
    """The certificate is for the Service's name, whatever the address: the name goes into SNI and Host."""
    host = f"kruntimes-gateway.{NAMESPACE}.svc"
    with (
        api.function(ECHO) as run,
        gateway.client() as client,
        release.forwarded("service/kruntimes-gateway", 443) as port,
    ):
        answer = client.post(
            f"https://127.0.0.1:{port}{path_of(run)}",
            headers={**gateway.headers(), "host": host},
            json={"b": 2},
            extensions={"sni_hostname": host},
        )
        assert (answer.status_code, answer.json()) == (200, {"got": {"b": 2}})


def test_the_notes_lead_to_an_answer(stack: Any, release: Cluster) -> None:
    """What Helm prints at the end of an install, pasted as it stands."""
    notes = release.run("helm", "get", "notes", "kruntimes", "-n", NAMESPACE)
    script = "\n".join(line[2:] for line in notes.splitlines() if line.startswith("  "))
    try:
        said = release.paste(script)
        assert said.endswith('{"name":"you"}'), said
    finally:
        release.kubectl("delete", "run/first", "-n", "default", "--ignore-not-found")
        made = ("serviceaccount/first-caller", "role/first-caller", "rolebinding/first-caller")
        release.kubectl("delete", *made, "-n", "default", "--ignore-not-found")


def test_from_a_pod_with_its_own_token(stack: Any, release: Cluster, api: Api) -> None:
    """A Pod's mounted token is all it needs, if its ServiceAccount may get the Run."""
    name = f"caller-{uuid.uuid4().hex[:8]}"
    rules = [{"apiGroups": ["kruntimes.io"], "resources": ["runs"], "verbs": ["get"]}]
    api.user(name, rules)
    with api.function(ECHO) as run:
        url = f"https://kruntimes-gateway.{NAMESPACE}.svc{path_of(run)}"
        said = _in_a_pod(release, name, ["python", "-c", CALLER, url])
    assert json.loads(said) == [200, "completed", '{"got":{"from":"a pod"}}']


def test_a_pod_that_may_not_get_the_run_is_refused(stack: Any, release: Cluster, api: Api) -> None:
    name = f"stranger-{uuid.uuid4().hex[:8]}"
    api.user(name, [])
    with api.function(ECHO) as run:
        url = f"https://kruntimes-gateway.{NAMESPACE}.svc{path_of(run)}"
        refused = CALLER.replace("answer = ", "import urllib.error\ntry:\n    answer = ", 1).replace(
            "print(json", "except urllib.error.HTTPError as error:\n    sys.exit(print(error.code))\nprint(json", 1
        )
        said = _in_a_pod(release, name, ["python", "-c", refused, url])
    assert said.strip() == "403"


def test_nobody_outside_reaches_a_service_behind_the_gateway(stack: Any, release: Cluster) -> None:
    """Only one Service has a node port, and it takes only TLS."""
    services = release.json("services", "-A")["items"]
    exposed = [(s["metadata"]["name"], p["name"]) for s in services for p in s["spec"]["ports"] if p.get("nodePort")]
    assert exposed == [("kruntimes-gateway", "https")]
    port = next(s for s in services if s["metadata"]["name"] == "kruntimes-gateway")["spec"]["ports"][0]["nodePort"]
    plain = httpx.post(f"http://{release.address}:{port}/v1/namespaces/default", trust_env=False, timeout=30)
    assert plain.status_code == 426


def _in_a_pod(release: Cluster, account: str, command: list[str]) -> str:
    """Runs *command* in a Pod of *account* in the namespace `default`; returns its output."""
    with running(release, command, account=account) as pod:
        return until_ended(release, pod)
