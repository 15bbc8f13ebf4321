"""A crowd of first calls: no connection to the owner is open yet, and the crowd itself must not be what closes the way.

A Pod that holds 8 Runs gets 96 connections and no more, which is what it can greet within the gateway's one second.
Where other work keeps the machine from even that, a call is told so, and that it never began.
"""

import threading
from collections import Counter

from gateway_table import Observer, samples
from support import Api, Gateway, path_of

CALLERS = 300
LIMIT_SECONDS = 60.0
MAX_OPENED = 200
"""Twice what may be open at once: those that could not be greeted in time are opened anew. Far below one for each."""


def connections(api: Api) -> dict[str, float]:
    """How many connections each gateway Pod has opened to Runtime Pods."""
    return {
        name: sum(
            sample.value
            for sample in samples(text, "envoy_cluster_upstream_cx_total")
            if sample.labels["envoy_cluster_name"].startswith("runs")
        )
        for name, text in Observer(api).envoys().items()
    }


def test_many_first_calls_at_once_are_one_answer_and_many_refusals(api: Api, gateway: Gateway) -> None:
    source = "import time\ndef handler(event):\n    time.sleep(event['seconds'])\n"
    before = sum(connections(api).values())
    with api.function(source) as run:
        answers: list[tuple[int, str]] = []
        start = threading.Barrier(CALLERS)

        def call() -> None:
            with gateway.client(timeout=LIMIT_SECONDS) as client:
                client.get("/")  # opens the connection to the gateway, so that the calls come at once
                start.wait(LIMIT_SECONDS)
                answer = client.post(path_of(run), content=b'{"seconds": 4}', headers=gateway.headers())
                answers.append((answer.status_code, answer.json()["error"]["reason"] if answer.is_error else ""))

        callers = [threading.Thread(target=call) for _ in range(CALLERS)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(LIMIT_SECONDS)
    assert len(answers) == CALLERS
    assert set(answers) <= {(200, ""), (429, "InvocationInFlight"), (503, "OwnerUnreachable")}
    assert answers.count((200, "")) == 1
    opened = sum(connections(api).values()) - before
    assert opened <= MAX_OPENED, f"{opened} connections for {Counter(answers)}"
