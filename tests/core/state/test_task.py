"""One task of ours: what is asked in its course, under which keys, and until when."""

from __future__ import annotations

import pytest
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.state.task import Input, State, Task, Wanted


def task() -> Task:
    return Task(
        "t",
        ordinal=1,
        server="s",
        tool="dig",
        owner="o",
        payer="p",
        sid="",
        principal="",
        is_legacy=True,
        created_at="then",
        created_at_unix=1000.0,
        ttl_ms=5000,
        poll_ms=700,
    )


def wanted(number: int) -> Wanted:
    return Wanted(number, "elicitation/create", b"{}")


def test_questions_have_keys_that_are_used_once() -> None:
    """It is the client's turn while there is one."""
    it = task()
    assert [it.receive_question(wanted(number)) for number in (7, 8)] == ["q1", "q2"]
    it.told |= {7, 8}
    assert it.state is State.INPUT_REQUIRED
    assert it.receive_answer(7) is True
    assert (it.state, set(it.questions), it.told) == (State.INPUT_REQUIRED, {"q2"}, {8})
    assert it.receive_answer(7) is False
    assert it.receive_answer(99) is False
    assert (it.state, set(it.questions), it.told) == (State.INPUT_REQUIRED, {"q2"}, {8})
    assert it.receive_answer(8) is True
    assert (it.state, it.questions, it.told) == (State.WORKING, {}, set())
    assert it.receive_question(wanted(7)) == "q3"


@pytest.mark.parametrize(
    ("how", "state"),
    [(Input.RETURN, State.COMPLETED), (Input.FAIL, State.FAILED), (Input.CANCEL, State.CANCELLED)],
)
@pytest.mark.parametrize("is_asked", [False, True])
def test_the_end_takes_its_questions_along(how: Input, state: State, is_asked: bool) -> None:
    it = task()
    if is_asked:
        it.receive_question(wanted(7))
        it.told.add(7)
    it.end(how)
    assert (it.state, it.questions, it.told, it.is_over) == (state, {}, set(), True)
    assert it.receive_answer(7) is False
    with pytest.raises(LocalProtocolError):
        it.end(how)
    assert it.state is state


def test_its_time_is_counted_from_its_beginning() -> None:
    it = task()
    assert (it.created_at, it.updated_at, it.expires_at_unix) == ("then", "then", 1005.0)
    it.begin("now", 2000.0)
    assert (it.created_at, it.updated_at) == ("now", "now")
    assert (it.created_at_unix, it.updated_at_unix, it.expires_at_unix) == (2000.0, 2000.0, 2005.0)


def test_a_task_is_what_it_was_made_with_and_nothing_was_said_of_it_yet() -> None:
    """Every member: what is not given has its beginning, and no two tasks share what may change."""
    it = task()
    assert {name: getattr(it, name) for name in Task.__slots__ if not name.startswith("_")} == {
        "id": "t",
        "ordinal": 1,
        "server": "s",
        "tool": "dig",
        "owner": "o",
        "payer": "p",
        "sid": "",
        "principal": "",
        "is_legacy": True,
        "created_at": "then",
        "updated_at": "then",
        "created_at_unix": 1000.0,
        "updated_at_unix": 1000.0,
        "expires_at_unix": 1005.0,
        "ttl_ms": 5000,
        "poll_ms": 700,
        "message": "",
        "upstream_task": "",
        "is_remote": False,
        "upstream_session": ("", ""),
        "questions": {},
        "told": set(),
        "outcome": None,
        "is_error": False,
        "blob": None,
        "size_bytes": 0,
        "counted_for": "",
        "ticks": 0,
    }
    assert it.state is State.WORKING
    it.receive_question(wanted(7))
    it.told.add(7)
    assert (task().questions, task().told) == ({}, set())


def test_a_state_is_shown_by_its_name() -> None:
    """Clients read it, and records hold it: both revisions with tasks spell it so."""
    assert {state: state.value for state in State} == {state: state.name.lower() for state in State}
    assert {taken: taken.value for taken in Input} == {taken: taken.name.lower() for taken in Input}
