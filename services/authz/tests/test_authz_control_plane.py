"""authz against a real API server: real tokens, real RBAC, reviews made as the caller."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.authz_world import World, authz, forged, world

from kruntimes.common.kube import paths

RUNS = {"apiGroups": ["kruntimes.io"], "resources": ["runs"]}


@pytest.fixture
async def there(control_plane: Path) -> AsyncIterator[World]:
    async with world(control_plane) as made:
        yield made


def path_of(there: World, uid: str) -> str:
    return f"/v1/namespaces/{there.namespace}/runtimes/python/functions/{uid}:invoke"


async def test_who_may_do_what_and_who_may_know_what(
    there: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    hello, secret = await there.add_run("hello"), await there.add_run("secret")
    elsewhere, nowhere = await there.add_run("hello", there.elsewhere), str(uuid.uuid4())
    admin = await there.add_caller("admin", [RUNS | {"verbs": ["get", "list"]}])
    getter = await there.add_caller("getter", [RUNS | {"verbs": ["get"], "resourceNames": ["hello"]}])
    stranger = await there.add_caller("stranger", [])
    gone = await there.add_caller("gone", [RUNS | {"verbs": ["get", "list"]}])
    await there.kube.delete(paths.serviceaccounts(there.namespace, "gone"))
    tokens = {
        "admin": admin,
        "getter": getter,
        "stranger": stranger,
        "of-a-deleted-account": gone,
        "for-another-audience": await there.token_of("admin", audiences=("elsewhere",)),
        "forged": forged(admin),
        "garbage": "garbage",
    }
    cases = [
        (who, where, 401, "Unauthorized")
        for who in ("of-a-deleted-account", "for-another-audience", "forged", "garbage")
        for where in (hello, nowhere)
    ]
    cases += [
        ("admin", hello, 200, ""),
        ("admin", secret, 200, ""),
        ("admin", nowhere, 404, "RunNotFound"),
        ("admin", elsewhere, 404, "RunNotFound"),
        ("getter", hello, 200, ""),
        ("getter", secret, 403, "Forbidden"),
        ("getter", nowhere, 403, "Forbidden"),
        ("getter", elsewhere, 403, "Forbidden"),
        ("stranger", hello, 403, "Forbidden"),
        ("stranger", nowhere, 403, "Forbidden"),
    ]
    async with authz(there.kube, tmp_path / "authz.sock") as service:
        # A binding that was made a moment ago is not yet known to the API server's own authorizer.
        async with asyncio.timeout(30):
            while (await service.check(path_of(there, nowhere), admin))[0] != 404:
                await asyncio.sleep(0.1)
            while (await service.check(path_of(there, nowhere), gone))[0] != 401:
                await asyncio.sleep(0.1)
        answers = await asyncio.gather(*(service.check(path_of(there, uid), tokens[who]) for who, uid, _, _ in cases))
        found = [
            (who, uid, status, error.get("reason", ""))
            for (who, uid, _, _), (status, _, error) in zip(cases, answers, strict=True)
        ]
        assert found == cases

        status, headers, _ = await service.check(path_of(there, hello), admin)
        assert (status, headers["x-kr-shard"], headers["x-kr-runtime"]) == (200, hello[:3], f"{there.namespace}/python")
        assert service.events[-1] == "hit"
        patience = headers["x-envoy-upstream-rq-timeout-ms"]
        assert patience == "65000", "the default deadline, and a little more"
        wrong = path_of(there, hello).replace("runtimes/python", "runtimes/no-such")
        for who, answer in (("admin", 404), ("getter", 404), ("stranger", 403), ("garbage", 401)):
            assert (await service.check(wrong, tokens[who]))[0] == answer, who
        alias = path_of(there, hello).replace("functions", "runs")
        status, headers, _ = await service.check(alias, admin)
        assert (status, headers.get("x-kr-shard"), headers["x-kr-runtime"]) == (200, None, f"{there.namespace}/python")
        status, headers, error = await service.check(
            path_of(there, hello), None, headers={"x-kruntime-invocation-id": "c-1"}
        )
        assert (status, headers["www-authenticate"]) == (401, 'Bearer realm="kruntimes"')
        assert (error["invocationId"], headers["x-kruntime-invocation-id"]) == ("c-1", "c-1")
        assert (headers["x-kruntime-outcome"], headers["x-kruntime-retry-safe"]) == ("rejected", "true")
    logged = caplog.text + "".join(str(record.__dict__) for record in caplog.records)
    assert all(token not in logged for token in tokens.values() if token != "garbage")


async def test_a_run_is_found_as_soon_as_it_is_there_and_lost_when_it_goes(there: World, tmp_path: Path) -> None:
    admin = await there.add_caller("admin", [RUNS | {"verbs": ["get", "list"]}])
    async with authz(there.kube, tmp_path / "authz.sock") as service:
        async with asyncio.timeout(30):
            while (await service.check(path_of(there, str(uuid.uuid4())), admin))[0] != 404:
                await asyncio.sleep(0.1)
        for number in range(3):
            uid = await there.add_run(f"run-{number}")
            async with asyncio.timeout(30):
                while (await service.check(path_of(there, uid), admin))[0] != 200:
                    await asyncio.sleep(0.05)
            assert len(service.index) >= 1
            await there.kube.delete(paths.runs(there.namespace, f"run-{number}"))
            async with asyncio.timeout(30):
                while (await service.check(path_of(there, uid), admin))[0] != 404:
                    await asyncio.sleep(0.05)
