"""What engines are asked to open that they cannot."""

from __future__ import annotations

import pytest
from driving import driver
from isthmus.core.base.effects import DeleteOpening, EventPipeOpening, GetOpening, Opening, PipeOpening, PostOpening
from isthmus.core.base.errors import LocalProtocolError


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
def test_a_server_that_is_not_in_the_plan_is_our_callers_mistake(opening: Opening) -> None:
    """Whatever is opened to it; and what was is as it was."""
    engine = driver().engine
    with pytest.raises(LocalProtocolError, match="there is no server 'x' in the plan"):
        engine.receive_open(engine.new_channel(), opening, 1.0)
    assert engine.next_timeout() is None
