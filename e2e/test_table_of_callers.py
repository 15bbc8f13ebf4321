"""Who calls, and who may know what: tokens, methods, and the order in which faults are told (design §6)."""

import pytest
from gateway_table import AUTHZ, Expect, Row, Target, check, params

NOBODY = Expect(401, "Unauthorized", AUTHZ)
MAY_NOT = Expect(403, "Forbidden", AUTHZ)
METHOD = Expect(405, "MethodNotAllowed", AUTHZ)
IN = "/v1/namespaces/{namespace}/runtimes/{runtime}"
UNKNOWN = f"{IN}/functions/{{nowhere}}:invoke"
CANCEL = f"{IN}/functions/{{uid}}/invocations/a:cancel"


def authorization(*values: str) -> tuple[tuple[str, str], ...]:
    return tuple(("authorization", value) for value in values)


ROWS = [
    Row(id="no-token", token=None, expect=NOBODY),
    Row(id="no-token-for-an-unknown-run", target=UNKNOWN, token=None, expect=NOBODY),
    Row(id="no-token-for-a-cancellation", target=CANCEL, token=None, expect=NOBODY),
    Row(id="no-token-for-the-alias", target=f"{IN}/runs/{{uid}}:invoke", token=None, expect=NOBODY),
    Row(id="empty", token=None, headers=authorization(""), expect=NOBODY),
    Row(id="scheme-only", token=None, headers=authorization("Bearer"), expect=NOBODY),
    Row(id="token-only", token=None, headers=authorization("{token}"), expect=NOBODY),
    Row(id="basic", token=None, headers=authorization("Basic dXNlcjpwYXNz"), expect=NOBODY),
    Row(id="negotiate", token=None, headers=authorization("Negotiate YII="), expect=NOBODY),
    Row(id="two-words", token=None, headers=authorization("Bearer {token} x"), expect=NOBODY),
    Row(id="comma", token=None, headers=authorization("Bearer {token},Bearer {token}"), expect=NOBODY),
    Row(id="quoted", token=None, headers=authorization('Bearer "{token}"'), expect=NOBODY),
    Row(id="parameter", token=None, headers=authorization("Bearer token={token}!"), expect=NOBODY),
    Row(id="tabulator", token=None, headers=authorization("Bearer\t{token}"), expect=NOBODY),
    Row(id="given-twice", token="user", headers=authorization("Bearer {token}"), expect=NOBODY),
    Row(id="given-twice-one-bad", token="garbage", headers=authorization("Bearer {token}"), expect=NOBODY),
    Row(id="in-another-header", token=None, headers=(("x-authorization", "Bearer {token}"),), expect=NOBODY),
    Row(id="of-a-proxy", token=None, headers=(("proxy-authorization", "Bearer {token}"),), expect=NOBODY),
    Row(id="in-a-cookie", token=None, headers=(("cookie", "token={token}"),), expect=NOBODY),
    Row(id="garbage", token="garbage", expect=NOBODY),
    Row(id="garbage-for-an-unknown-run", target=UNKNOWN, token="garbage", expect=NOBODY),
    Row(id="forged", token="forged", expect=NOBODY),
    Row(id="for-another-audience", token="audience", expect=NOBODY),
    Row(id="stranger", token="stranger", expect=MAY_NOT),
    Row(id="stranger-and-the-alias", target=f"{IN}/runs/{{uid}}:invoke", token="stranger", expect=MAY_NOT),
    Row(id="stranger-and-a-cancellation", target=CANCEL, token="stranger", expect=MAY_NOT),
    Row(id="stranger-and-an-unknown-run", target=UNKNOWN, token="stranger", expect=MAY_NOT),
    Row(
        id="stranger-and-no-such-runtime",
        target="/v1/namespaces/{namespace}/runtimes/no-such/functions/{uid}:invoke",
        token="stranger",
        expect=MAY_NOT,
    ),
    Row(
        id="getter-and-no-such-runtime",
        target="/v1/namespaces/{namespace}/runtimes/no-such/functions/{uid}:invoke",
        token="getter",
        expect=Expect(404, "RunNotFound", AUTHZ),
    ),
    Row(id="getter-and-an-unknown-run", target=UNKNOWN, token="getter", expect=MAY_NOT),
    Row(
        id="getter-and-another-namespace",
        target="/v1/namespaces/kube-system/runtimes/{runtime}/functions/{uid}:invoke",
        token="getter",
        expect=MAY_NOT,
    ),
    Row(id="impersonation", token="stranger", headers=(("impersonate-user", "admin"),), expect=MAY_NOT),
    Row(id="remote-user", token="stranger", headers=(("x-remote-user", "admin"),), expect=MAY_NOT),
    Row(id="forwarded-for", token="stranger", headers=(("x-forwarded-for", "127.0.0.1"),), expect=MAY_NOT),
    Row(id="original-path", token="stranger", headers=(("x-envoy-original-path", "/"),), expect=MAY_NOT),
    # methods
    Row(id="get", method="GET", body=b"", expect=METHOD),
    Row(id="put", method="PUT", expect=METHOD),
    Row(id="patch", method="PATCH", expect=METHOD),
    Row(id="delete", method="DELETE", body=b"", expect=METHOD),
    Row(id="options", method="OPTIONS", body=b"", expect=METHOD),
    Row(id="trace", method="TRACE", body=b"", expect=METHOD),
    Row(id="unknown-method", method="PROPFIND", body=b"", expect=METHOD),
    Row(id="get-for-a-cancellation", target=CANCEL, method="GET", body=b"", expect=METHOD),
    Row(id="override", method="GET", body=b"", headers=(("x-http-method-override", "POST"),), expect=METHOD),
    # what is told first
    Row(id="method-before-token", method="GET", body=b"", token=None, expect=METHOD),
    Row(
        id="method-before-time-out",
        method="PUT",
        headers=(("x-kruntime-timeout-ms", "0"),),
        expect=METHOD,
    ),
    Row(
        id="time-out-before-token",
        token=None,
        headers=(("x-kruntime-timeout-ms", "0"),),
        expect=Expect(400, "BadTimeout", AUTHZ),
    ),
]


@pytest.mark.parametrize(("row", "protocol"), params(ROWS))
def test_callers(table: Target, row: Row, protocol: str) -> None:
    check(table, row, protocol)
