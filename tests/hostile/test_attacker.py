"""Tests of the storms themselves: how long they go on, and what they report. Nothing is attacked."""

from __future__ import annotations

import asyncio
import random

import attacker
import pytest
from attacker import Attack, Storm

GOAL = "batch_max"
REFUSAL = b"got a batch of 65 messages, expected 1 to 64"


class Rounds(Attack):
    """Rounds of which the third is refused, if any is."""

    name = "rounds"
    width = 1
    reaches = frozenset({GOAL})

    def __init__(self, *, is_refused: bool) -> None:
        self._is_refused = is_refused

    async def make_round(self, storm: Storm) -> None:
        if self._is_refused and storm.counts["rounds"] == 3:
            storm.note_refusal(REFUSAL)


def storm_of(attack: Attack) -> Storm:
    """Runs a storm that ends at once, unless its attack has a limit to reach."""
    storm = Storm(0, random.Random(1), 0.0, "127.0.0.2", attack.reaches)
    asyncio.run(attack.run(storm))
    return storm


def test_a_storm_goes_on_until_its_limit_is_reached() -> None:
    storm = storm_of(Rounds(is_refused=True))
    assert (storm.counts["rounds"], storm.reached, storm.wrongs) == (3, {GOAL}, [])


def test_a_storm_that_does_not_reach_its_limit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacker, "GOAL_TIMEOUT_S", 0.0)
    storm = storm_of(Rounds(is_refused=False))
    assert storm.reached == set()
    assert storm.wrongs == [f"{GOAL} was not reached, expected a storm that reaches it"]


@pytest.mark.parametrize(
    ("status", "field", "is_right"),
    [(503, b"retry-after: 1\r\n", True), (503, b"", False), (500, b"retry-after: 1\r\n", False)],
)
def test_a_refusal_for_connections_has_to_say_when_to_try_again(status: int, field: bytes, is_right: bool) -> None:
    async def read() -> Storm:
        body = b"got more connections than this server takes, expected fewer"
        reader = asyncio.StreamReader()
        reader.feed_data(b"HTTP/1.1 %d No\r\n%scontent-length: %d\r\n\r\n%s" % (status, field, len(body), body))
        storm = Storm(0, random.Random(1), 0.0, "127.0.0.2")
        await storm.response(reader)
        return storm

    storm = asyncio.run(read())
    assert storm.reached == {"connections_per_address_max"}
    assert len(storm.wrongs) == (0 if is_right else 1)
