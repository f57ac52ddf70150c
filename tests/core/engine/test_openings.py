"""Tests of openings that an engine cannot serve."""

from __future__ import annotations

import pytest
from driving import driver
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.events import DeleteOpening, EventPipeOpening, GetOpening, Opening, PipeOpening, PostOpening


@pytest.mark.parametrize(
    "opening",
    [
        PostOpening("x"),
        PipeOpening("x", "", ""),
        GetOpening("x"),
        DeleteOpening("x"),
        EventPipeOpening("x", endpoint="/m"),
    ],
)
def test_an_opening_for_a_server_outside_the_plan_raises(opening: Opening) -> None:
    """An opening for an unknown server raises `LocalProtocolError` and changes nothing."""
    engine = driver().engine
    with pytest.raises(LocalProtocolError, match="there is no server 'x' in the plan"):
        engine.receive_open(engine.new_channel(), opening, 1.0)
    assert engine.next_timeout() is None
