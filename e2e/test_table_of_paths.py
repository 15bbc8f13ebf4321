"""Paths: what is of the form, what is not, and every spelling that two readers might read differently (design §6)."""

import pytest
from gateway_table import AUTHZ, ENVOY, MADE, NULL, Expect, Row, Target, check, params

BAD_PATH = Expect(400, "BadPath", AUTHZ)
BAD_FORM = Expect(400, "BadRequest", ENVOY)
BROKEN = Expect(400, "BadRequest", ENVOY, invocation_id=NULL)
QUERY = Expect(400, "QueryNotAllowed", AUTHZ)
NOWHERE = Expect(404, "NotFound", ENVOY)
NO_RUN = Expect(404, "RunNotFound", AUTHZ)
V1 = "/v1/namespaces/"
IN = "{namespace}/runtimes/{runtime}"
LONG = "a" * 64
TO_CANCEL = f"{V1}{IN}/functions/{{uid}}/invocations/"

ROWS = [
    # nothing is there
    Row(id="root", target="/", expect=NOWHERE),
    Row(id="metrics", target="/metrics", expect=NOWHERE),
    Row(id="ready", target="/ready", expect=NOWHERE),
    Row(id="admin", target="/config_dump", expect=NOWHERE),
    Row(id="another-version", target=f"/v2/namespaces/{IN}/functions/{{uid}}:invoke", expect=NOWHERE),
    Row(id="upper-case-version", target=f"/V1/namespaces/{IN}/functions/{{uid}}:invoke", expect=NOWHERE),
    Row(id="no-namespaces", target="/v1/namespaces", expect=NOWHERE),
    Row(id="without-a-token", target="/v1", token=None, expect=NOWHERE),
    Row(id="get-elsewhere", target="/", method="GET", body=b"", expect=NOWHERE),
    Row(id="slash-first", target="/{path}", expect=NOWHERE),
    Row(id="encoded-version", target=f"/%76%31/namespaces/{IN}/functions/{{uid}}:invoke", expect=NOWHERE),
    Row(id="encoded-first-slash", target="/v1%2fnamespaces/x", expect=NOWHERE),
    Row(id="out-of-the-form-by-dots", target="/v1/namespaces/../../metrics", expect=BAD_FORM),
    # below the prefix, but of another form
    Row(id="prefix-only", target=V1, expect=BAD_FORM),
    Row(id="no-runtime", target=f"{V1}{{namespace}}/functions/{{uid}}:invoke", expect=BAD_FORM),
    Row(id="slash-at-the-end", target="{path}/", expect=BAD_FORM),
    Row(id="two-slashes", target=f"{V1}{{namespace}}//runtimes/{{runtime}}/functions/{{uid}}:invoke", expect=BAD_FORM),
    Row(id="another-verb", target=f"{V1}{IN}/functions/{{uid}}:run", expect=BAD_FORM),
    Row(id="no-verb", target=f"{V1}{IN}/functions/{{uid}}", expect=BAD_FORM),
    Row(id="verb-in-upper-case", target=f"{V1}{IN}/functions/{{uid}}:INVOKE", expect=BAD_FORM),
    Row(id="encoded-verb", target=f"{V1}{IN}/functions/{{uid}}%3ainvoke", expect=BAD_FORM),
    Row(id="encoded-word", target=f"{V1}{IN}/%66unctions/{{uid}}:invoke", expect=BAD_FORM),
    Row(id="cancel-without-an-id", target=f"{V1}{IN}/functions/{{uid}}:cancel", expect=BAD_FORM),
    Row(id="cancel-of-nothing", target=f"{TO_CANCEL}:cancel", expect=BAD_FORM),
    Row(id="other-form-without-a-token", target=f"{V1}x", token=None, expect=BAD_FORM),
    Row(id="other-form-by-get", target=f"{V1}x", method="GET", body=b"", expect=BAD_FORM),
    Row(id="too-deep", target=f"{V1}{IN}/functions/{{uid}}/a/b:invoke", expect=BAD_FORM),
    # of the form for who sorts, but not for who reads
    Row(id="uid-too-short", target=f"{V1}{IN}/functions/1234:invoke", expect=BAD_PATH),
    Row(id="uid-in-upper-case", target=f"{V1}{IN}/functions/{{UID}}:invoke", expect=BAD_PATH),
    Row(id="uid-in-braces", target=f"{V1}{IN}/functions/%7b{{uid}}%7d:invoke", expect=BAD_PATH),
    Row(id="uid-twice", target=f"{V1}{IN}/functions/{{uid}}{{uid}}:invoke", expect=BAD_PATH),
    Row(id="uid-and-a-null", target=f"{V1}{IN}/functions/{{uid}}%00:invoke", expect=BAD_PATH),
    Row(id="uid-and-a-line-end", target=f"{V1}{IN}/functions/{{uid}}%0d%0a:invoke", expect=BAD_PATH),
    Row(id="encoded-uid", target=f"{V1}{IN}/functions/%61{{uid}}:invoke", expect=BAD_PATH),
    Row(id="two-verbs", target="{path}:invoke", expect=BAD_PATH),
    Row(id="matrix-parameter", target=f"{V1}{IN};a=b/functions/{{uid}}:invoke", expect=BAD_PATH),
    Row(id="encoded-runtime", target=f"{V1}{{namespace}}/runtimes/%70ython/functions/{{uid}}:invoke", expect=BAD_PATH),
    Row(id="encoded-slash", target=f"{V1}{{namespace}}/runtimes/a%2fb/functions/{{uid}}:invoke", expect=BAD_PATH),
    Row(id="encoded-slash-upper", target=f"{V1}{{namespace}}/runtimes/a%2Fb/functions/{{uid}}:invoke", expect=BAD_PATH),
    Row(id="encoded-dots", target=f"{V1}x/%2e%2e/{IN}/functions/{{uid}}:invoke", expect=BAD_FORM),
    Row(id="encoded-twice", target=f"{V1}%2564efault/runtimes/python/functions/{{uid}}:invoke", expect=BAD_PATH),
    Row(id="backslash", target=f"{V1}{{namespace}}\\runtimes/{{runtime}}/functions/{{uid}}:invoke", expect=BAD_FORM),
    Row(id="namespace-in-upper-case", target=f"{V1}Default/runtimes/python/functions/{{uid}}:invoke", expect=BAD_PATH),
    Row(id="namespace-with-a-dot", target=f"{V1}a.b/runtimes/python/functions/{{uid}}:invoke", expect=BAD_PATH),
    Row(id="namespace-too-long", target=f"{V1}{LONG}/runtimes/python/functions/{{uid}}:invoke", expect=BAD_PATH),
    Row(id="runtime-too-long", target=f"{V1}default/runtimes/{LONG}/functions/{{uid}}:invoke", expect=BAD_PATH),
    Row(id="id-to-cancel-too-long", target=f"{TO_CANCEL}{2 * LONG}a:cancel", expect=BAD_PATH),
    Row(id="id-to-cancel-with-a-blank", target=f"{TO_CANCEL}a%20b:cancel", expect=BAD_PATH),
    Row(id="id-to-cancel-half-encoded", target=f"{TO_CANCEL}a%2:cancel", expect=BAD_PATH),
    Row(id="bad-path-without-a-token", target=f"{V1}{IN}/functions/x:invoke", token=None, expect=BAD_PATH),
    Row(id="bad-path-by-get", target=f"{V1}{IN}/functions/x:invoke", method="GET", body=b"", expect=BAD_PATH),
    # a query string, which nobody reads
    Row(id="query", target="{path}?a=b", expect=QUERY),
    Row(id="empty-query", target="{path}?", expect=QUERY),
    Row(id="query-of-another-run", target="{path}?uid={nowhere}", expect=QUERY),
    Row(id="query-with-a-path", target="{path}?/v1/namespaces/x", expect=QUERY),
    Row(id="query-of-a-cancellation", target=f"{TO_CANCEL}a:cancel?b", expect=QUERY),
    Row(id="query-without-a-token", target="{path}?a", token=None, expect=QUERY),
    # what is no path at all; HTTP/1.1 alone has other forms of a target
    Row(id="fragment", target="{path}#a", expect=BAD_FORM),
    Row(id="asterisk", target="*", method="OPTIONS", body=b"", expect=NOWHERE, h1_only=True),
    Row(id="blank", target="{path} x", expect=BROKEN, h1_only=True),
    Row(id="no-path", target="", expect=BROKEN, h1_only=True),
    Row(id="no-slash", target="v1/namespaces/x", expect=BROKEN, h1_only=True),
    Row(id="not-ascii", target="/v1/namespaces/\xe4", expect=BROKEN, h2=BAD_FORM),
    Row(id="absolute-form-elsewhere", target="https://{authority}/x", expect=NOWHERE, h1_only=True),
    Row(id="absolute-form-of-another-form", target="https://evil.test/v1/namespaces/x", expect=BAD_FORM, h1_only=True),
    Row(id="absolute-form-with-dots", target="https://{authority}/v1/namespaces/x/../y", expect=BAD_FORM, h1_only=True),
    Row(id="a-made-id", target="/nothing", own_id=False, expect=Expect(404, "NotFound", ENVOY, invocation_id=MADE)),
    # well formed, of a Run that is not there
    Row(id="unknown-run", target=f"{V1}{IN}/functions/{{nowhere}}:invoke", expect=NO_RUN),
    Row(id="unknown-run-by-alias", target=f"{V1}{IN}/runs/{{nowhere}}:invoke", expect=NO_RUN),
    Row(id="cancel-in-an-unknown-run", target=f"{V1}{IN}/functions/{{nowhere}}/invocations/a:cancel", expect=NO_RUN),
    Row(id="no-such-runtime", target=f"{V1}{{namespace}}/runtimes/no-such/functions/{{uid}}:invoke", expect=NO_RUN),
    Row(id="no-such-runtime-by-alias", target=f"{V1}{{namespace}}/runtimes/no-such/runs/{{uid}}:invoke", expect=NO_RUN),
    Row(
        id="another-runtime",
        target=f"{V1}{{namespace}}/runtimes/bash/functions/{{uid}}:invoke",
        expect=Expect(404, "RunNotFound", "runtimed"),
    ),
    Row(
        id="another-namespace",
        target=f"{V1}kube-public/runtimes/{{runtime}}/functions/{{uid}}:invoke",
        expect=Expect(403, "Forbidden", AUTHZ),
    ),
    Row(
        id="nothing-to-cancel",
        target=f"{TO_CANCEL}{{nowhere}}:cancel",
        expect=Expect(404, "InvocationNotFound", "runtimed", invocation_id="{nowhere}"),
    ),
]


@pytest.mark.parametrize(("row", "protocol"), params(ROWS))
def test_paths(table: Target, row: Row, protocol: str) -> None:
    check(table, row, protocol)
