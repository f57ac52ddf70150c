"""The engine frees what is over at once: after each kind of end, it leaves nothing to the garbage collector."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable

import pytest
from dialogue import Dialogue
from dialogue_peers import Client, Server
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan
from isthmus.core.base.revisions import Era

PARTS = tuple(f"isthmus.core.{room}" for room in ("base", "jsonrpc", "state", "downstream", "upstream", "endpoints"))
"""The packages of what comes and goes: sessions, links, exchanges, streams, channels, messages and their faults."""

End = Callable[[Dialogue, Server, Client], None]


def leaves(play: Dialogue, files: Server, alice: Client) -> None:
    alice.leaves()


def leaves_during_a_call(play: Dialogue, files: Server, alice: Client) -> None:
    alice.asks("tools/call", {"name": "t"})
    files.is_asked("tools/call")
    alice.leaves()


def dies_during_a_call(play: Dialogue, files: Server, alice: Client) -> None:
    call = alice.asks("tools/call", {"name": "t"})
    files.is_asked("tools/call")
    files.dies()
    alice.is_answered(call, error=-31001)
    alice.leaves()


def cancels(play: Dialogue, files: Server, alice: Client) -> None:
    call = alice.asks("tools/call", {"name": "t"})
    asked = files.is_asked("tools/call")
    alice.cancels(call)
    files.is_cancelled(asked)
    play.unexpected.clear()
    alice.leaves()


def is_silent(play: Dialogue, files: Server, alice: Client) -> None:
    alice.asks("tools/call", {"name": "t"})
    files.is_asked("tools/call")
    play.waits(100.0)
    play.unexpected.clear()
    alice.leaves()


def says_garbage(play: Dialogue, files: Server, alice: Client) -> None:
    for message in (b"{", b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', b"\xff"):
        play.happens(play.engine.receive_message, files.channel, message)
        if alice.pipe is not None:
            play.happens(play.engine.receive_message, alice.pipe, message)
            play.unexpected.clear()
    alice.leaves()


ENDS = [leaves, leaves_during_a_call, dies_during_a_call, cancels, is_silent, says_garbage]


@pytest.mark.parametrize(("end", "era"), [*((end, Era.HANDSHAKE) for end in ENDS), (leaves, Era.STATELESS)])
@pytest.mark.parametrize("down", ["http", "pipe"])
def test_an_end_leaves_nothing_to_the_collector(end: End, down: str, era: Era) -> None:
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        limits = Limits(reply_timeout_s=5.0, shared_linger_s=1.0)
        play = Dialogue(ServerPlan(id="files", kind=Kind.PIPE, era=Era.HANDSHAKE), limits=limits)
        alice = play.client("alice", down, era=era)
        alice.meets(play.server)
        end(play, play.server, alice)
        play.unexpected.clear()
        gc.collect()
        left = Counter(type(each).__qualname__ for each in gc.garbage if type(each).__module__.startswith(PARTS))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not left, "these are in cycles"
