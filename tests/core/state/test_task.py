"""A task of ours: its questions, their keys, and its end."""

from __future__ import annotations

import pytest
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.state.task import Task, TaskInput, TaskQuestion, TaskState


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


def wanted(number: int) -> TaskQuestion:
    return TaskQuestion(number, "elicitation/create", b"{}")


def test_questions_have_keys_that_are_used_once() -> None:
    """The status is `input_required` while a question is open."""
    one = task()
    assert [one.receive_question(wanted(number)) for number in (7, 8)] == ["q1", "q2"]
    one.told |= {7, 8}
    assert one.state is TaskState.INPUT_REQUIRED
    assert one.receive_answer(7) is True
    assert (one.state, set(one.questions), one.told) == (TaskState.INPUT_REQUIRED, {"q2"}, {8})
    assert one.receive_answer(7) is False
    assert one.receive_answer(99) is False
    assert (one.state, set(one.questions), one.told) == (TaskState.INPUT_REQUIRED, {"q2"}, {8})
    assert one.receive_answer(8) is True
    assert (one.state, one.questions, one.told) == (TaskState.WORKING, {}, set())
    assert one.receive_question(wanted(7)) == "q3"


@pytest.mark.parametrize(
    ("how", "state"),
    [
        (TaskInput.RETURN, TaskState.COMPLETED),
        (TaskInput.FAIL, TaskState.FAILED),
        (TaskInput.CANCEL, TaskState.CANCELLED),
    ],
)
@pytest.mark.parametrize("has_question", [False, True])
def test_the_end_removes_the_questions(how: TaskInput, state: TaskState, has_question: bool) -> None:
    one = task()
    if has_question:
        one.receive_question(wanted(7))
        one.told.add(7)
    one.end(how, "why", 1001.0)
    assert (one.state, one.questions, one.told, one.is_over) == (state, {}, set(), True)
    assert (one.message, one.updated_at_unix) == ("why", 1001.0)
    assert one.receive_answer(7) is False
    with pytest.raises(LocalProtocolError):
        one.end(how, "why", 1001.0)
    assert one.state is state


def test_the_ttl_is_counted_from_the_creation() -> None:
    one = task()
    assert (one.created_at, one.updated_at, one.expires_at_unix) == ("then", "then", 1005.0)
    one.begin("now", 2000.0)
    assert (one.created_at, one.updated_at) == ("now", "now")
    assert (one.created_at_unix, one.updated_at_unix, one.expires_at_unix) == (2000.0, 2000.0, 2005.0)


def test_a_new_task_has_its_arguments_and_defaults() -> None:
    """Each member that is not given has its default, and no two tasks share a mutable one."""
    one = task()
    assert {name: getattr(one, name) for name in Task.__slots__ if not name.startswith("_")} == {
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
        "replica": "",
        "message": "",
        "upstream_task": "",
        "is_remote": False,
        "upstream_session": ("", "", ""),
        "questions": {},
        "told": set(),
        "outcome": None,
        "is_error": False,
        "blob": None,
        "size_bytes": 0,
        "counted_for": "",
        "ticks": 0,
        "trace": None,
    }
    assert one.state is TaskState.WORKING
    one.receive_question(wanted(7))
    one.told.add(7)
    assert (task().questions, task().told) == ({}, set())


def test_the_states_are_spelled_as_in_the_specification() -> None:
    """Clients read the values, and records hold them; both revisions with tasks spell them so."""
    assert {state: state.value for state in TaskState} == {state: state.name.lower() for state in TaskState}
    assert {taken: taken.value for taken in TaskInput} == {taken: taken.name.lower() for taken in TaskInput}
