"""`helm upgrade` and `helm rollback` under load: values take effect, functions stay, callers notice nothing."""

import threading
from collections import Counter
from typing import Any

from cluster.release import Cluster
from support import Api, Gateway, eventually

COUNTER = "calls = 0\ndef handler(event):\n    global calls\n    calls += 1\n    return calls\n"
BETWEEN_CALLS = 0.1


def _level(release: Cluster, deployment: str) -> str:
    spec = release.json("deployment", deployment, "-n", "kruntimes-system")["spec"]["template"]["spec"]
    container = (spec.get("initContainers") or spec["containers"])[0]
    return str(next(e["value"] for e in container["env"] if e["name"] == "KRUNTIMES_LOG_LEVEL"))


def test_upgrade_and_rollback_keep_functions_callable(stack: Any, release: Cluster, api: Api, gateway: Gateway) -> None:
    with api.function(COUNTER) as run, gateway.client() as client:
        url, stop, seen = run["status"]["endpoint"]["url"], threading.Event(), Counter[str]()

        def call_all_the_time() -> None:
            while not stop.wait(BETWEEN_CALLS):
                try:
                    answer = client.post(url, headers=gateway.headers(), json={})
                    seen[f"{answer.status_code} {answer.headers['x-kruntime-retry-safe']}"] += 1
                except Exception as error:
                    seen[repr(error)] += 1

        caller = threading.Thread(target=call_all_the_time)
        caller.start()
        try:
            before = release.revision()
            release.upgrade(**{"logLevel": "DEBUG", "runtimes.bash.replicas": 2})
            assert {_level(release, f"kruntimes-{one}") for one in ("operator", "router", "gateway")} == {"DEBUG"}
            release.runtime_ready("bash", 2)
            release.rollback(before)
            assert {_level(release, f"kruntimes-{one}") for one in ("operator", "router", "gateway")} == {"INFO"}
        finally:
            stop.set()
            caller.join(60)
        assert set(seen) == {"200 false"}, seen
        assert seen["200 false"] > 20
        # The same process has answered all of them: an upgrade does not move a function.
        assert client.post(url, headers=gateway.headers(), json={}).json() == seen["200 false"] + 1
        after = api.run(run["metadata"]["name"])
        assert after is not None and after["status"]["assignedPodUID"] == run["status"]["assignedPodUID"]
    release.runtime_ready("python", 2)
    release.runtime_ready("bash", 1)


def test_an_upgrade_brings_the_definitions_up_to_date(stack: Any, release: Cluster) -> None:
    """Helm installs definitions once and never again; a hook of ours does it."""
    kind = "runs.kruntimes.io"
    patch = '[{"op": "replace", "path": "/spec/names/shortNames", "value": ["old"]}]'
    release.kubectl("patch", "crd", kind, "--type=json", "-p", patch)
    eventually("the old name", lambda: release.json("crd", kind)["spec"]["names"]["shortNames"] == ["old"])
    release.upgrade()
    assert release.json("crd", kind)["spec"]["names"]["shortNames"] == ["rn"]
    names = release.kubectl("get", "jobs,clusterroles,serviceaccounts", "-n", "kruntimes-system", "-o", "name")
    assert "hook" not in names, names
