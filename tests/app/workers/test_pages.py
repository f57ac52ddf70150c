"""Tests of the operator pages of all workers: what they make of the answers of each, and of those that are missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from isthmus.app.workers import pages
from isthmus.app.workers.pages import ENDING, Answer, Question, WorkerPages, combined
from isthmus.core.wire.http.admin_routes import Page

Json = dict[str, Any]


def server(name: str, state: str, **members: object) -> Json:
    return {"name": name, "state": state, "sessions": 1, "pids": [], "last_error": "", **members}


def show(page: Page, **parts: tuple[int, Json] | None) -> tuple[int, Json]:
    answers = {tag: part and Answer(part[0], json.dumps(part[1]).encode()) for tag, part in parts.items()}
    found = combined(Question(page, "a"), answers, "w1")
    return found.status, json.loads(found.body)


def test_servers_of_all_workers_are_one_list() -> None:
    """A server is running if it runs at one of them, and stopped if it is at all. A new configuration may be at some
    only."""
    first = {"servers": [server("a", "idle", last_error="fell"), server("b", "stopped", pids=[1])]}
    second = {"servers": [server("a", "running", pids=[2, 3]), server("b", "stopped", pids=[4]), server("c", "failed")]}
    status, found = show(Page.SERVERS, w1=(200, first), w2=(200, second), w3=None)
    assert status == 200
    a, b, c = found["servers"]
    assert (a["state"], a["sessions"], a["pids"], a["last_error"]) == ("running", 2, [2, 3], "fell")
    assert (b["state"], b["pids"]) == ("stopped", [1, 4])
    assert [(each["worker"], each["state"]) for each in a["workers"]] == [
        ("w1", "idle"),
        ("w2", "running"),
        ("w3", "unknown"),
    ]
    assert [each["worker"] for each in c["workers"]] == ["w2", "w3"]


def test_one_server_is_shown_if_a_worker_has_it() -> None:
    unknown = (404, {"error": "got the server 'a'", "code": 404})
    status, found = show(Page.SERVER, w1=unknown, w2=(200, server("a", "running")))
    assert status == 200 and found["state"] == "running"
    assert show(Page.SERVER, w1=unknown, w2=None) == unknown


DONE = (200, {"name": "a", "action": "", "status": "success", "server": server("a", "running")})
ALREADY = (409, {"error": "a is running already", "code": 409})
STOPPED = (503, {"error": "a is stopped already", "code": 503})
UNKNOWN = (404, {"error": "got the server 'a'", "code": 404})
BROKEN = (502, {"error": "a answers with garbage", "code": 502})


@pytest.mark.parametrize(
    ("page", "first", "second", "status", "said"),
    [
        (Page.START, DONE, DONE, 200, ""),
        (Page.START, ALREADY, DONE, 200, ""),
        (Page.START, UNKNOWN, DONE, 200, ""),
        (Page.START, ALREADY, UNKNOWN, 409, "a is running already"),
        (Page.START, UNKNOWN, UNKNOWN, 404, "got the server 'a'"),
        (Page.START, DONE, BROKEN, 502, "worker w2: a answers with garbage; done at w1"),
        (Page.START, DONE, STOPPED, 503, "worker w2: a is stopped already; done at w1"),  # its message for a limit
        (Page.STOP, STOPPED, DONE, 200, ""),
        (Page.STOP, STOPPED, STOPPED, 503, "a is stopped already"),
        (Page.STOP, STOPPED, None, 503, "worker w2 does not answer: it starts, ends or is paused, so repeat this"),
        (Page.RESTART, BROKEN, ALREADY, 502, "worker w1: a answers with garbage"),
    ],
)
def test_an_order_has_succeeded_if_it_has_where_it_had_to(
    page: Page, first: tuple[int, Json], second: tuple[int, Json] | None, status: int, said: str
) -> None:
    found_status, found = show(page, w1=first, w2=second)
    assert (found_status, found.get("error", "")) == (status, said)
    if status == 200:
        changed = {each["worker"]: each["is_changed"] for each in found["workers"]}
        expected = {"w1": first is DONE, "w2": second is DONE}
        assert changed == {tag: is_done for tag, is_done in expected.items() if first is not UNKNOWN or tag == "w2"}


@pytest.mark.anyio
async def test_workers_that_are_gone_paused_or_broken_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer may take longer than a worker may take to take the question."""
    monkeypatch.setattr(pages, "TAKE_TIMEOUT_S", 0.2)
    is_asked = anyio.Event()

    async def answer(question: Question) -> Answer:
        is_asked.set()
        if question.page is Page.STOP:
            await anyio.sleep(2 * pages.TAKE_TIMEOUT_S)
        return Answer(200, json.dumps({"server": server("a", "stopped"), "servers": []}).encode())

    async def own(question: Question) -> Answer:
        await is_asked.wait()
        return Answer(404, b"{}")

    gone = await anyio.create_unix_listener(tmp_path / f"w3{ENDING}")
    await gone.aclose()
    paused = await anyio.create_unix_listener(tmp_path / f"w4{ENDING}")
    broken = await anyio.create_unix_listener(tmp_path / f"w5{ENDING}")

    async def answer_nonsense(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.send(b"+nonsense")

    with anyio.fail_after(20):
        async with paused, anyio.create_task_group() as tasks:
            tasks.start_soon(broken.serve, answer_nonsense)
            await tasks.start(WorkerPages(str(tmp_path), "w2", answer).run)
            found = await WorkerPages(str(tmp_path), "w1", own).answer(Question(Page.STOP, "a"))
            tasks.cancel_scope.cancel()
    assert found.status == 503
    said = json.loads(found.body)["error"]
    for tag in ("w3", "w4", "w5"):
        assert f"worker {tag} does not answer" in said
    assert said.endswith("done at w2")
