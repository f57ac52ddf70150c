"""A request that was refused for its scopes: whether another login is worth it, and with which scopes."""

from __future__ import annotations

import pytest
from isthmus.core.logins.challenges import BearerChallenge
from isthmus.core.logins.step_up import ATTEMPTS_MAX, OPERATIONS_MAX, StepUps

CHALLENGE = BearerChallenge(scope=("write", "read"), error="insufficient_scope")


def test_the_scopes_are_the_union() -> None:
    """2026-07-28: "the union of the client's previously requested scope set and the scopes from the challenge"."""
    assert StepUps().begin("s", "tools/call a", 403, CHALLENGE, ("read", "list")) == ("read", "list", "write")


def test_an_operation_has_two_attempts() -> None:
    """SEP-835: retries are limited for each resource and operation."""
    step_ups = StepUps()
    found = [step_ups.begin("s", "tools/call a", 403, CHALLENGE, ()) is not None for _ in range(ATTEMPTS_MAX + 2)]
    assert found == [True] * ATTEMPTS_MAX + [False, False]
    assert step_ups.begin("s", "tools/call b", 403, CHALLENGE, ())
    assert step_ups.begin("t", "tools/call a", 403, CHALLENGE, ())


@pytest.mark.parametrize(
    ("status", "challenge"),
    [
        (401, CHALLENGE),
        (403, None),
        (403, BearerChallenge(scope=("a",))),
        (403, BearerChallenge(scope=("a",), error="invalid_token")),
        (403, BearerChallenge(error="insufficient_scope")),
        (403, BearerChallenge(scope=(), error="insufficient_scope")),
    ],
)
def test_another_refusal_is_none_of_scopes(status: int, challenge: BearerChallenge | None) -> None:
    assert StepUps().begin("s", "o", status, challenge, ()) is None


def test_at_the_most_operations_the_oldest_is_forgotten() -> None:
    step_ups = StepUps()
    for number in range(OPERATIONS_MAX + 1):
        for _ in range(ATTEMPTS_MAX):
            assert step_ups.begin("s", str(number), 403, CHALLENGE, ())
    assert step_ups.begin("s", "1", 403, CHALLENGE, ()) is None
    assert step_ups.begin("s", "0", 403, CHALLENGE, ()) is not None
