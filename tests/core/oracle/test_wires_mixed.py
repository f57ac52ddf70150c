"""Clients that are seen as one, since nothing of them tells them apart: what can be said of them all the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from isthmus.core.base.effects import Connected, Post
from isthmus.core.base.ids import ChannelId

from tests.core.oracle.test_wires import META, Taken, dial, said


def ask(taken: Taken, channel: int, id: int, token: str | None = None) -> None:
    """A request to a server without sessions, and the beginning of its reply."""
    meta = META if token is None else {**META, "progressToken": token}
    message = said(id=id, method="tools/list", params={"_meta": meta})
    mirrored = (("Mcp-Method", "tools/list"),)
    taken.order(dial(channel, Post("s", message, None, "2026-07-28", mirrored=mirrored)))
    taken.wires.receive_open(ChannelId(channel), Connected())


def progress(taken: Taken, channel: int, token: str, progress: int) -> None:
    params = {"progressToken": token, "progress": progress}
    taken.wires.receive_message(ChannelId(channel), said(method="notifications/progress", params=params))


def answer(taken: Taken, channel: int, id: int) -> None:
    result = {"resultType": "complete", "tools": [], "ttlMs": 0, "cacheScope": "private"}
    taken.wires.receive_message(ChannelId(channel), said(id=id, result=result))


def same_id(taken: Taken) -> None:
    ask(taken, 1, 1)
    ask(taken, 2, 1)


def same_token(taken: Taken) -> None:
    ask(taken, 1, 1, "t")
    ask(taken, 2, 2, "t")


def standing(taken: Taken) -> None:
    ask(taken, 1, 1, "t")
    for _ in range(2):
        progress(taken, 1, "t", 5)


def late(taken: Taken) -> None:
    ask(taken, 1, 1, "t")
    ask(taken, 2, 2)
    answer(taken, 1, 1)
    progress(taken, 2, "t", 5)


def unknown(taken: Taken) -> None:
    ask(taken, 1, 1, "t")
    progress(taken, 1, "u", 5)


MEETINGS: list[tuple[Callable[[Taken], None], tuple[str, str], bool]] = [
    (same_id, ("client", "id-reused"), True),
    (same_token, ("client", "progress-token-reused"), True),
    (standing, ("server", "progress-stands"), True),
    (late, ("server", "progress-late"), True),
    (unknown, ("server", "progress-unknown"), False),
]


@pytest.mark.parametrize("knows_origin", [True, False])
@pytest.mark.parametrize(("play", "rule", "is_meeting"), MEETINGS, ids=[rule for _, (_, rule), _ in MEETINGS])
def test_what_may_be_anothers_is_held_against_nobody(
    play: Callable[[Taken], None], rule: tuple[str, str], is_meeting: bool, knows_origin: bool
) -> None:
    """Ids and tokens meet where several are seen as one; where it is known who speaks, they may not. What no client
    gave is wrong whoever they are."""
    taken = Taken(knows_origin=knows_origin)
    play(taken)
    assert len(taken.by_wire) == 1
    assert taken.rules.count(rule) == (knows_origin or not is_meeting)
