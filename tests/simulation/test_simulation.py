"""Tests of a few worlds: fixed seeds, and the seeds of all that ever failed. `make simulate` makes many."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from isthmus.core.base.effects import Send
from isthmus.core.base.ids import ChannelId
from simulated_clients import PipeClient
from simulated_network import FAULTS, Channel, Wrong
from simulation import World, run_world

SEEDS: Final = tuple(map(str, range(16)))
KEPT: Final = tuple((Path(__file__).parent / "seeds.txt").read_text().split())
"""Seeds that failed once."""


@pytest.mark.parametrize("seed", dict.fromkeys((*SEEDS, *KEPT)))
def test_each_request_is_answered_once_and_no_client_gets_anothers_messages(seed: str) -> None:
    """The engine raises nothing, breaks no rule, leaks no mark, and keeps nothing of clients that leave."""
    report = run_world(seed)
    assert not report.wrong, f"{report.wrong}\nsee it again with: make simulate SEEDS={seed}"
    assert report.outcomes["result"] > 0


def test_a_seed_gives_one_history() -> None:
    """All inputs and effects are the same byte for byte. Another seed gives another history."""
    first, again, other = (run_world(seed) for seed in ("28", "28", "29"))
    assert (first.history, first.messages, first.counts) == (again.history, again.messages, again.counts)
    assert first.history != other.history


def test_each_fault_strikes_in_some_worlds_only() -> None:
    worlds = [World(seed) for seed in SEEDS]
    has = Counter(fault for world in worlds for fault in world.faults)
    assert all(0 < has[fault] < len(worlds) for fault in FAULTS)
    assert any(not world.faults for world in worlds)


def _asking() -> tuple[PipeClient, Channel]:
    """Returns a client that has called a tool with the id 1, and its channel."""
    client = PipeClient(World("1").network, 1, "s0", "")
    client.is_rude = False
    client.pipe = Channel(ChannelId(9), client)
    assert client.call() == 1
    return client, client.pipe


ANSWER: Final = b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"mk1:1"}]}}'


def test_a_good_answer_settles_a_request() -> None:
    client, pipe = _asking()
    client.receive(pipe, Send(pipe.number, ANSWER))
    assert not client.owed


@pytest.mark.parametrize(
    ("messages", "what"),
    [
        ((ANSWER, ANSWER), "answered again"),
        ((ANSWER.replace(b"mk1:", b"mk2:"),), "belongs to another"),
        ((ANSWER.replace(b"mk1:1", b"mk1:2"),), "was answered"),
        ((ANSWER.replace(b'"id":1', b'"id":2'),), "asked nothing"),
    ],
)
def test_a_client_detects_an_answer_that_is_not_owed(messages: tuple[bytes, ...], what: str) -> None:
    client, pipe = _asking()
    with pytest.raises(Wrong, match=what):
        for message in messages:
            client.receive(pipe, Send(pipe.number, message))


def test_a_client_detects_an_answer_on_another_channel() -> None:
    client, _ = _asking()
    other = Channel(ChannelId(10), client)
    with pytest.raises(Wrong, match="another channel"):
        client.receive(other, Send(other.number, ANSWER))
