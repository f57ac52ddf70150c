"""Tests of a server's health: starts and failures are counted, and after some failures in a row the server is left
alone, longer each time."""

from __future__ import annotations

import pytest
from isthmus.core.base.limits import Limits
from isthmus.core.upstream.health import FURTHER, TOOL_MAX_CHARS, TOOLS_COUNTED_MAX, Health

LIMITS = Limits(crash_loop_failures=3, crash_loop_pause_s=10.0, crash_loop_pause_max_s=60.0)


def fields(health: Health) -> tuple[int, int, int, bool, str, bool]:
    return (
        health.starts,
        health.failures,
        health.in_a_row,
        health.is_failing,
        health.last_error,
        health.is_stopped,
    )


def test_a_server_that_was_never_started_has_no_history() -> None:
    health = Health(LIMITS)
    assert fields(health) == (0, 0, 0, False, "", False)
    assert health.why_not(-1e9) is None
    assert health.pause_left(-1e9) == 0.0


def test_each_event_is_counted_where_it_belongs() -> None:
    """Events are a start, a refusal by a server that is no process of ours, a process that failed, one that came up,
    and one that answered."""
    health = Health(LIMITS)
    health.receive_start()
    health.receive_start()
    assert fields(health) == (2, 0, 0, False, "", False)
    health.receive_refusal("no route")
    assert fields(health) == (2, 1, 0, True, "no route", False)
    health.receive_failure("died", 0.0)
    health.receive_failure("died again", 0.0)
    assert fields(health) == (2, 3, 2, True, "died again", False)
    health.receive_ready()
    assert fields(health) == (2, 3, 2, False, "died again", False)
    health.receive_proof()
    assert fields(health) == (2, 3, 0, False, "died again", False)


def test_refusals_by_a_remote_server_are_no_crash_loop() -> None:
    health = Health(LIMITS)
    for _ in range(9):
        health.receive_refusal("no")
    assert health.why_not(0.0) is None


@pytest.mark.parametrize(("failures", "pause_s"), [(1, 0), (2, 0), (3, 10), (4, 20), (5, 40), (6, 60), (9, 60)])
def test_the_pause_is_doubled_with_each_failure_up_to_its_bound(failures: int, pause_s: float) -> None:
    health = Health(LIMITS)
    for _ in range(failures):
        health.receive_failure("it died", 100.0)
    assert health.pause_left(100.0) == pause_s
    assert health.pause_left(105.0) == max(0.0, pause_s - 5)
    assert health.why_not(100.0 + pause_s) is None
    assert health.pause_left(101.0 + pause_s) == 0.0
    if pause_s:
        reason = f"it failed {failures} times in a row, and is left alone for {pause_s:.0f} s: it died"
        assert health.why_not(100.0) == reason
        assert health.why_not(99.5 + pause_s) is not None


def test_the_pause_stays_a_number_whatever_has_failed() -> None:
    """The pause is doubled sixteen times and no more, so that it does not overflow."""
    health = Health(Limits(crash_loop_failures=1, crash_loop_pause_s=1.0, crash_loop_pause_max_s=1e9))
    pauses = []
    for _ in range(5000):
        health.receive_failure("no", 0.0)
        pauses.append(health.pause_left(0.0))
    assert pauses[:18] == [2.0**n for n in range(17)] + [2.0**16]
    assert pauses[-1] == 2.0**16


@pytest.mark.parametrize("is_stopped", [False, True])
def test_an_order_resets_the_failures_in_a_row(is_stopped: bool) -> None:
    """Only the total of failures and the last error remain."""
    health = Health(LIMITS)
    for _ in range(4):
        health.receive_failure("no", 0.0)
    health.receive_order(is_stopped=is_stopped)
    assert fields(health) == (0, 4, 0, False, "no", is_stopped)
    assert health.pause_left(0.0) == 0.0
    assert health.why_not(0.0) == ("it is stopped; start it first" if is_stopped else None)
    health.receive_order(is_stopped=False)
    assert health.why_not(0.0) is None


def test_differences_are_noted_once_and_bounded() -> None:
    health = Health(Limits(tools_known_max=1))
    assert health.receive_definition("tools", "a", "changed")
    assert not health.receive_definition("tools", "a", "changed")
    assert health.receive_definition("tools", "a", "changed otherwise")
    assert health.receive_definition("tools", "b", "changed")
    assert health.differences == {("tools", "a"): "changed otherwise"}
    assert health.differences_seen == 3
    assert not health.receive_definition("tools", "a", "")
    assert health.differences == {}
    health.receive_definition("tools", "c", "new")
    health.receive_definitions("prompts", {})
    assert health.differences == {("tools", "c"): "new"}
    health.receive_definitions("tools", {"d"})
    assert health.differences == {}


def test_refused_calls_are_counted_by_a_bounded_number_of_names() -> None:
    health = Health(Limits())
    for tool in [*map(str, range(TOOLS_COUNTED_MAX + 5)), "0", "n" * (TOOL_MAX_CHARS + 1)]:
        health.receive_limited(tool)
    assert len(health.limited) == TOOLS_COUNTED_MAX + 1
    assert (health.limited["0"], health.limited[FURTHER]) == (2, 6)
