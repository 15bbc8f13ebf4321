"""A Runtime Pod goes while a call is under way: the call has an honest end, and the function lives on elsewhere."""

import threading
import uuid
from typing import Any

import httpx
import pytest
from cluster.release import Cluster
from support import Api, Gateway, eventually

SLOW = """
import time

def handler(event):
    open("/tmp/began-" + event["mark"], "w").close()
    time.sleep(event["seconds"])
    return {"slept": event["seconds"]}
"""
SECONDS = 90.0


@pytest.mark.parametrize("force", [False, True], ids=["deleted", "killed"])
def test_a_run_becomes_ready_elsewhere_and_is_called_again(
    stack: Any, release: Cluster, api: Api, gateway: Gateway, force: bool
) -> None:
    with api.function(SLOW, retryPolicy={"maxAttempts": 3}) as run, gateway.client() as client:
        status, name = run["status"], run["metadata"]["name"]
        url, mark = status["endpoint"]["url"], uuid.uuid4().hex
        answers: list[httpx.Response] = []

        def call() -> None:
            body = {"mark": mark, "seconds": 30 if force else 4}
            answers.append(client.post(url, headers=gateway.headers(), json=body))

        caller = threading.Thread(target=call)
        caller.start()
        exists = ("exec", status["assignedPod"], "-n", "default", "-c", "runtime", "--", "ls", "/tmp")
        eventually("the call has begun", lambda: f"began-{mark}" in release.kubectl(*exists))
        gone = ("delete", "pod", status["assignedPod"], "-n", "default", "--wait=false")
        release.kubectl(*gone, *(("--grace-period=0", "--force") if force else ()))
        caller.join(SECONDS)
        assert not caller.is_alive()
        answer = answers[0]
        if force:  # cut off after it was dispatched: nobody may say that nothing ran
            ended = (answer.status_code, answer.headers["x-kruntime-outcome"])
            assert ended in {(499, "cancelled"), (502, "unknown")}, answer.text
            assert answer.headers["x-kruntime-retry-safe"] == "false"
        else:  # the Pod waits for what it has begun
            assert (answer.status_code, answer.json()) == (200, {"slept": 4}), answer.text

        def elsewhere() -> dict[str, Any] | None:
            found = api.run(name)
            assert found is not None
            ready = {c["type"]: c["status"] for c in found["status"]["conditions"]}.get("Ready") == "True"
            return found if ready and found["status"]["assignedPodUID"] != status["assignedPodUID"] else None

        moved = eventually("the Run is Ready in another Pod", elsewhere, SECONDS)
        assert moved["status"]["attempt"] == 2
        assert moved["status"]["endpoint"]["url"] == url

        def called() -> httpx.Response | None:
            """Until the new route is known everywhere a refusal that is safe to repeat is a right answer."""
            again = client.post(url, headers=gateway.headers(), json={"mark": "again", "seconds": 0})
            assert again.status_code in (200, 503), again.text
            assert again.status_code == 200 or again.headers["x-kruntime-retry-safe"] == "true"
            return again if again.status_code == 200 else None

        assert eventually("the Run is called again", called).json() == {"slept": 0}
        release.runtime_ready("python", 2)
