"""Tests of the checks of tasks: each one fails when the proxy breaks its rule."""

from __future__ import annotations

import pytest
from isthmus.core.tasks import requests
from simulated_clients import Client, HttpClient, ModernPipeClient, PipeClient
from simulated_network import Wrong
from simulated_tasks import TaskRecord
from simulation import World, run_world

SHAPE = {"taskId": "t", "status": "working"}
DONE = {**SHAPE, "status": "completed"}
RESULT = {"content": [{"type": "text", "text": "mk1:1"}]}


def _client(number: int, kind: type[Client] = PipeClient, server: str = "s0", principal: str = "") -> Client:
    client = kind(World("1").network, number, server, principal)
    client.is_ready = True
    return client


def _task_record(owner: Client) -> TaskRecord:
    """Returns the record of one task, which its client saw in the answer to the first request."""
    task_record = TaskRecord()
    task_record.give(owner, "t", "mk1:1")
    task_record.see(owner, SHAPE, 0)
    return task_record


def test_a_task_is_given_once() -> None:
    task_record = _task_record(_client(1))
    with pytest.raises(Wrong, match="was given the task t"):
        task_record.give(_client(2), "t", "mk2:1")


@pytest.mark.parametrize(
    ("owner", "other", "may"),
    [
        (_client(1), _client(2), False),
        (_client(1, HttpClient), _client(2), False),
        (_client(1, principal="ann"), _client(2, principal="ann"), True),
        (_client(1, principal="ann"), _client(2, principal="bob"), False),
        (_client(1, principal="ann"), _client(2), False),
        (_client(1, principal="ann"), _client(2, server="s1", principal="ann"), False),
        (_client(1, principal="ann"), _client(2, ModernPipeClient, principal="ann"), False),
        (_client(1, ModernPipeClient), _client(2, ModernPipeClient), True),
    ],
    ids=str,
)
def test_which_clients_may_see_a_task(owner: Client, other: Client, may: bool) -> None:
    task_record = _task_record(owner)
    assert task_record.may_see(owner, "t")
    assert task_record.may_see(other, "t") is may
    if not may:
        with pytest.raises(Wrong, match="which is mk1:'s"):
            task_record.see(other, SHAPE, 1)


@pytest.mark.parametrize(("name", "value"), [("is_ready", False), ("incarnation", 2)])
def test_a_task_of_an_ended_session_is_visible_to_any_client(name: str, value: int) -> None:
    owner = _client(1)
    task_record = _task_record(owner)
    setattr(owner, name, value)
    assert task_record.may_see(_client(2), "t")


def test_a_finished_task_stays_finished() -> None:
    owner = _client(1)
    task_record = _task_record(owner)
    owner.network.asked = 5
    task_record.see(owner, DONE, 3)
    task_record.see(owner, SHAPE, 4)  # this request was made before the end was seen
    task_record.see(owner, DONE, 6)
    for status in ("working", "cancelled"):
        with pytest.raises(Wrong, match="t was completed, and is"):
            task_record.see(owner, {**SHAPE, "status": status}, 6)


def test_an_unknown_status_is_detected() -> None:
    with pytest.raises(Wrong, match="told the status 'done'"):
        _task_record(_client(1)).see(_client(1), {**SHAPE, "status": "done"}, 1)


def test_a_result_belongs_to_its_call_and_never_changes() -> None:
    owner = _client(1)
    task_record = _task_record(owner)
    task_record.take_result(owner, "t", RESULT)
    task_record.take_result(owner, "t", dict(RESULT))
    with pytest.raises(Wrong, match="and then"):
        task_record.take_result(owner, "t", {**RESULT, "_meta": {}})
    with pytest.raises(Wrong, match="gave"):
        task_record.take_result(owner, "t", {"content": [{"type": "text", "text": "mk1:2"}]})


def test_worlds_detect_a_proxy_that_shows_tasks_to_any_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "may_see", lambda session, task, *, is_live: True)
    wrong = (run_world(str(seed), is_checked=False).wrong for seed in range(30, 60))
    assert any("asked for" in text for text in wrong)
