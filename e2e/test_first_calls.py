"""A crowd of first calls: no connection to the owner is open yet, and none of them may fail for want of one."""

import threading

from support import Api, Gateway, path_of

CALLERS = 300
LIMIT_SECONDS = 60.0


def test_many_first_calls_at_once_are_one_answer_and_many_refusals(api: Api, gateway: Gateway) -> None:
    source = "import time\ndef handler(event):\n    time.sleep(event['seconds'])\n"
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
    assert set(answers) == {(200, ""), (429, "InvocationInFlight")}
    assert answers.count((200, "")) == 1
