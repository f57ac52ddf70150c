"""What is held against the proxy about tasks can be broken, and is seen then."""

from __future__ import annotations

import pytest
from isthmus.core.tasks import requests
from simulated_clients import Client, HttpClient, ModernPipeClient, PipeClient
from simulated_network import Wrong
from simulated_tasks import Book
from simulation import World, run_world

SHAPE = {"taskId": "t", "status": "working"}
DONE = {**SHAPE, "status": "completed"}
RESULT = {"content": [{"type": "text", "text": "mk1:1"}]}


def _client(number: int, kind: type[Client] = PipeClient, server: str = "s0", principal: str = "") -> Client:
    client = kind(World("1").network, number, server, principal)
    client.is_ready = True
    return client


def _book(owner: Client) -> Book:
    """One task, which its client was told of as the first request was made."""
    book = Book()
    book.give(owner, "t", "mk1:1")
    book.see(owner, SHAPE, 0)
    return book


def test_a_task_is_given_once() -> None:
    book = _book(_client(1))
    with pytest.raises(Wrong, match="was given the task t"):
        book.give(_client(2), "t", "mk2:1")


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
def test_who_may_see_it(owner: Client, other: Client, may: bool) -> None:
    book = _book(owner)
    assert book.may_see(owner, "t")
    assert book.may_see(other, "t") is may
    if not may:
        with pytest.raises(Wrong, match="which is mk1:'s"):
            book.see(other, SHAPE, 1)


@pytest.mark.parametrize(("name", "value"), [("is_ready", False), ("incarnation", 2)])
def test_what_is_left_of_a_session_is_for_whoever_names_it(name: str, value: int) -> None:
    owner = _client(1)
    book = _book(owner)
    setattr(owner, name, value)
    assert book.may_see(_client(2), "t")


def test_what_is_over_stays_so() -> None:
    owner = _client(1)
    book = _book(owner)
    owner.network.asked = 5
    book.see(owner, DONE, 3)
    book.see(owner, SHAPE, 4)  # which was asked for before the end was seen
    book.see(owner, DONE, 6)
    for status in ("working", "cancelled"):
        with pytest.raises(Wrong, match="t was completed, and is"):
            book.see(owner, {**SHAPE, "status": status}, 6)


def test_a_status_is_one() -> None:
    with pytest.raises(Wrong, match="told the status 'done'"):
        _book(_client(1)).see(_client(1), {**SHAPE, "status": "done"}, 1)


def test_a_result_is_its_calls_and_stays_so() -> None:
    owner = _client(1)
    book = _book(owner)
    book.take_result(owner, "t", RESULT)
    book.take_result(owner, "t", dict(RESULT))
    with pytest.raises(Wrong, match="and then"):
        book.take_result(owner, "t", {**RESULT, "_meta": {}})
    with pytest.raises(Wrong, match="gave"):
        book.take_result(owner, "t", {"content": [{"type": "text", "text": "mk1:2"}]})


def test_worlds_see_a_proxy_that_shows_tasks_to_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "may_see", lambda session, task, *, is_live: True)
    wrong = (run_world(str(seed), is_heard=False).wrong for seed in range(30, 60))
    assert any("asked for" in text for text in wrong)
