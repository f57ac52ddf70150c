"""Tests of the HTTP interface for tasks, and of the metrics of tasks."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from http_caller import MARK, PATIENCE_S, Caller, fetch, operator, requested
from isthmus.app import gateway as gateway_module
from isthmus.app.admin.metrics import AGES_S, exposition
from isthmus.app.admin.tasks import OVER, STATUSES
from isthmus.app.base.version import VERSION
from isthmus.app.config.access_settings import Auth
from isthmus.app.config.settings import Core, Management, Server, Settings, Upstream
from isthmus.app.gateway import Gateway, running
from isthmus.core.status import Status
from prometheus_client.parser import text_string_to_metric_families
from task_fakes import TaskEngine, task_status

TOOLBOX = (sys.executable, str(Path(__file__).parents[1] / "peers" / "toolbox.py"))
TOKEN = "s3cret-t0ken"
DIG, ASK, DONE, GONE = (letter * 32 for letter in "1234")

pytestmark = pytest.mark.anyio


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> type[TaskEngine]:
    monkeypatch.setattr(gateway_module, "BulkEngine", TaskEngine)
    kept = [
        task_status(DIG, age_s=100, session="s" * 32, kind="proxied"),
        task_status(ASK, server="b", status="input_required", era="stateless", principal="ann", message="which?"),
        task_status(DONE, status="completed", size_bytes=5000, left_s=60),
        task_status(GONE, server="of an earlier configuration", status="failed", size_bytes=30),
    ]
    monkeypatch.setattr(TaskEngine, "kept", kept)
    monkeypatch.setattr(TaskEngine, "cancelled", [])
    return TaskEngine


@asynccontextmanager
async def proxy(**core: Any) -> AsyncIterator[Gateway]:
    servers = tuple(Server(id=id, upstream=Upstream(command=TOOLBOX), warm=0) for id in ("a", "b"))
    auth = Auth(anonymous="allow")
    settings = Settings(core=Core(port=0, drain_seconds=5.0, **core), auth=auth, servers=servers)
    with anyio.fail_after(4 * PATIENCE_S):
        async with running(settings, listen=True, is_lasting=False) as gateway:
            yield gateway


async def ids(gateway: Gateway, query: str = "") -> list[str]:
    status, body = await fetch(f"{gateway.base_url}/tasks{query}", headers=operator(gateway))
    assert status == 200, body
    return [task["id"] for task in body["tasks"]]


async def test_all_tasks_are_listed_in_order_and_each_looks_alike_alone(engine: type[TaskEngine]) -> None:
    async with proxy() as gateway:
        status, body = await fetch(f"{gateway.base_url}/tasks", headers=operator(gateway))
        assert (status, list(body)) == (200, ["tasks"])
        for shown, kept in zip(body["tasks"], engine.kept, strict=True):
            assert {name: shown[name] for name in kept.__struct_fields__} == msgspec.structs.asdict(kept)
            assert set(shown) == {*kept.__struct_fields__, "age_s", "expires_in_s"}
            one = (await fetch(f"{gateway.base_url}/tasks/{kept.id}", headers=operator(gateway)))[1]
            assert {**one, "age_s": 0, "expires_in_s": 0} == {**shown, "age_s": 0, "expires_in_s": 0}
        assert 100 <= body["tasks"][0]["age_s"] < 100 + PATIENCE_S
        assert 60 - PATIENCE_S < body["tasks"][2]["expires_in_s"] <= 60


async def test_a_list_may_be_narrowed(engine: type[TaskEngine]) -> None:
    async with proxy() as gateway:
        assert await ids(gateway) == [DIG, ASK, DONE, GONE]
        assert await ids(gateway, "?server=a") == [DIG, DONE]
        assert await ids(gateway, "?status=input_required") == [ASK]
        assert await ids(gateway, f"?session={'s' * 32}") == [DIG]
        assert await ids(gateway, "?server=a&status=completed") == [DONE]
        assert await ids(gateway, "?server=b&status=completed") == []
        assert await ids(gateway, "?session=nobody") == []
        assert await ids(gateway, "?server=of%20an%20earlier%20configuration") == [GONE]


@pytest.mark.parametrize(
    "query, reason",
    [
        ("status=done", "got the status 'done', expected one of working, input_required, completed, failed, cancelled"),
        ("status=", "got the status ''"),
        ("server=c", "got the server 'c', expected one of a, b, of an earlier configuration"),
        ("sever=a", "got the filter 'sever', expected one of server, status, session"),
        ("id=1", "got the filter 'id'"),
    ],
)
async def test_what_narrows_nothing_is_refused_by_name(engine: type[TaskEngine], query: str, reason: str) -> None:
    async with proxy() as gateway:
        status, body = await fetch(f"{gateway.base_url}/tasks?{query}", headers=operator(gateway))
        assert (status, body["code"]) == (400, 400)
        assert reason in body["error"]


async def test_a_task_is_cancelled_once(engine: type[TaskEngine]) -> None:
    async with proxy() as gateway:
        status, body = await fetch(f"{gateway.base_url}/tasks/{DIG}/cancel", "POST", operator(gateway))
        assert (status, body["id"], body["action"], body["status"]) == (200, DIG, "cancel", "success")
        assert (body["task"]["id"], body["task"]["status"]) == (DIG, "cancelled")
        status, body = await fetch(f"{gateway.base_url}/tasks/{DIG}/cancel", "POST", operator(gateway))
        assert (status, body["code"]) == (409, 409)
        assert body["error"] == f"the task {DIG} is over already: cancelled"
        for id in (DONE, GONE):
            assert (await fetch(f"{gateway.base_url}/tasks/{id}/cancel", "POST", operator(gateway)))[0] == 409
        status, _ = await fetch(f"{gateway.base_url}/tasks/{ASK}/cancel", "POST", operator(gateway))
        assert status == 200, "one that waits for an answer"
        assert engine.cancelled == [DIG, ASK]


@pytest.mark.parametrize("id", ["0" * 32, DIG[:8], "x", "%2e", "<b>"])
async def test_an_unknown_task_is_not_found(engine: type[TaskEngine], id: str) -> None:
    """A prefix of an id does not find the task either."""
    async with proxy() as gateway:
        for method, path in (("GET", f"/tasks/{id}"), ("POST", f"/tasks/{id}/cancel")):
            status, body = await fetch(gateway.base_url + path, method, operator(gateway))
            assert (status, body["code"]) == (404, 404)
            assert "expected one that is kept" in body["error"]
        assert engine.cancelled == []


async def test_only_posts_cancel(engine: type[TaskEngine]) -> None:
    async with proxy() as gateway:
        for method, path in (("GET", f"/tasks/{DIG}/cancel"), ("DELETE", f"/tasks/{DIG}"), ("POST", f"/tasks/{DIG}")):
            assert (await fetch(gateway.base_url + path, method, operator(gateway)))[0] == 405
        form = operator(gateway) | {"content-type": "application/x-www-form-urlencoded"}
        assert (await fetch(f"{gateway.base_url}/tasks/{DIG}/cancel", "POST", form))[0] == 415
        assert engine.cancelled == []


PAGES = [("GET", "/tasks"), ("GET", f"/tasks/{DIG}"), ("POST", f"/tasks/{DIG}/cancel"), ("GET", "/metrics")]


async def test_a_configured_token_is_required(engine: type[TaskEngine]) -> None:
    async with proxy(management=Management(token=TOKEN)) as gateway:
        for method, path in PAGES:
            for headers in ({}, {"authorization": "Bearer other"}):
                async with requested(gateway.base_url + path, method, headers) as response:
                    assert response.status == 401
                    assert DIG.encode() not in await response.body()
        assert engine.cancelled == []
        for method, path in PAGES:
            async with requested(gateway.base_url + path, method, {"authorization": f"Bearer {TOKEN}"}) as response:
                assert response.status == 200


@pytest.mark.parametrize(
    "core",
    [{"management": Management(enabled=False)}, {"host": "0.0.0.0"}, {"public_base_url": "https://gate.example"}],
    ids=["switched off", "open to other machines", "behind another"],
)
async def test_without_a_token_remote_clients_learn_no_name(engine: type[TaskEngine], core: dict[str, Any]) -> None:
    """A client without access gets the same 404 for known and unknown names."""
    async with proxy(**core) as gateway:
        nothing = (await fetch(f"{gateway.base_url}/nothing"))[1]
        for method, path in [*PAGES, ("GET", "/tasks/unknown")]:
            status, body = await fetch(gateway.base_url + path, method, MARK)
            assert (status, body) == (404, {**nothing, "detail": body["detail"]})
        assert engine.cancelled == []


# --- Numbers --------------------------------------------------------------------------------------------------------

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, "each once"
            found[key] = sample.value
    return found


def sample(found: Samples, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


def server_status(id: str, **members: Any) -> Status:
    usual: dict[str, Any] = {
        "kind": "pipe",
        "state": "running",
        "sessions": 3,
        "in_flight": 2,
        "processes": 4,
        "spares": 1,
        "starts": 7,
        "failures": 5,
        "noise": 0,
        "last_error": "",
        "eras": {},
        "era": None,
        "revision": None,
        "capabilities": (),
        "ready_at": None,
    }
    return Status(id=id, **(usual | members))


async def test_numbers_are_scraped(engine: type[TaskEngine]) -> None:
    async with proxy() as gateway:
        caller = Caller(f"{gateway.base_url}/mcp/a")
        await caller.initialize()
        async with requested(f"{gateway.base_url}/metrics") as response:
            assert response.status == 200
            assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert response.headers["cache-control"] == "no-store"
            text = (await response.body()).decode()
        found = samples(text)
        assert sample(found, "isthmus_info", version=VERSION) == 1
        for name, value in (
            ("isthmus_sessions", 1),
            ("isthmus_requests_in_flight", 0),
            ("isthmus_server_processes", 1),
            ("isthmus_server_starts_total", 1),
            ("isthmus_server_failures_total", 0),
        ):
            assert (sample(found, name, server="a"), sample(found, name, server="b")) == (value, 0)
        assert sample(found, "isthmus_tasks", server="a", status="working", kind="proxied") == 1
        assert sample(found, "isthmus_tasks", server="a", status="completed", kind="local") == 1
        assert 100 <= sample(found, "isthmus_task_age_seconds", server="a") < 100 + PATIENCE_S
        for secret in (DIG, ASK, DONE, GONE, "ann", "s" * 32, "which?", str(caller.session)):
            assert secret not in text
        async with requested(f"{gateway.base_url}/metrics") as response:
            again = samples((await response.body()).decode())
        assert again.keys() >= found.keys(), "each scrape is made anew, and no series goes"


def test_servers_are_counted_as_they_report() -> None:
    found = samples(exposition("1", [server_status("a"), server_status('q"\n\\', starts=9)], [], 0.0).decode())
    assert {name: sample(found, f"isthmus_{name}", server="a") for name in (
        "sessions", "requests_in_flight", "server_processes", "server_starts_total", "server_failures_total"
    )} == {
        "sessions": 3,
        "requests_in_flight": 2,
        "server_processes": 4,
        "server_starts_total": 7,
        "server_failures_total": 5,
    }  # fmt: skip
    assert sample(found, "isthmus_server_starts_total", server='q"\n\\') == 9


def test_what_there_is_none_of_is_zero() -> None:
    """Each series is present with the value 0, as a series that comes and goes cannot be watched."""
    found = samples(exposition("1", [server_status("a")], [], 0.0).decode())
    for status in STATUSES:
        for kind in ("proxied", "local"):
            assert sample(found, "isthmus_tasks", server="a", status=status, kind=kind) == 0
        assert sample(found, "isthmus_tasks_by_age_seconds_gcount", status=status) == 0
    assert sample(found, "isthmus_task_age_seconds", server="a") == 0
    assert sample(found, "isthmus_tasks_stored_bytes", server="a") == 0


def test_tasks_are_counted_by_server_status_kind_and_age() -> None:
    """The numbers of one scrape add up."""
    ages = [*AGES_S, *(age_s + 0.5 for age_s in AGES_S), 0.0, -5.0]
    tasks = [
        task_status(f"{i}", server="ab"[i % 2], status=STATUSES[i % 5], kind=("local", "proxied")[i % 3 == 0],
                    created_at_unix=1e9 - age_s, size_bytes=i)
        for i, age_s in enumerate(ages)
    ]  # fmt: skip
    found = samples(exposition("1", [server_status("a"), server_status("b")], tasks, 1e9).decode())
    assert sum(value for (name, _), value in found.items() if name == "isthmus_tasks") == len(tasks)
    for task in tasks:
        alike = [one for one in tasks if (one.server, one.status, one.kind) == (task.server, task.status, task.kind)]
        labels = {"server": task.server, "status": task.status, "kind": task.kind}
        assert sample(found, "isthmus_tasks", **labels) == len(alike)
    for server in ("a", "b"):
        own = [task for task in tasks if task.server == server]
        oldest_s = max(1e9 - task.created_at_unix for task in own if task.status not in OVER)
        assert sample(found, "isthmus_task_age_seconds", server=server) == oldest_s
        assert sample(found, "isthmus_tasks_stored_bytes", server=server) == sum(task.size_bytes for task in own)
    for status in STATUSES:
        aged = [max(0.0, 1e9 - task.created_at_unix) for task in tasks if task.status == status]
        for bound in AGES_S:
            counted = sample(found, "isthmus_tasks_by_age_seconds_bucket", status=status, le=f"{bound}.0")
            assert counted == sum(age_s <= bound for age_s in aged)
        assert sample(found, "isthmus_tasks_by_age_seconds_bucket", status=status, le="+Inf") == len(aged)
        assert sample(found, "isthmus_tasks_by_age_seconds_gcount", status=status) == len(aged)
        assert sample(found, "isthmus_tasks_by_age_seconds_gsum", status=status) == sum(aged)


def test_a_task_of_a_server_that_is_no_more_is_counted() -> None:
    task = task_status("1", server="gone", status="completed", size_bytes=3)
    found = samples(exposition("1", [server_status("a")], [task], task.created_at_unix).decode())
    assert sample(found, "isthmus_tasks", server="gone", status="completed", kind="local") == 1
    assert sample(found, "isthmus_tasks_stored_bytes", server="gone") == 3
