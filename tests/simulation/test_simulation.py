"""Some worlds, always the same ones, and the seeds of all that ever went wrong. `make simulate` makes many."""

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
"""Those that went wrong once."""


@pytest.mark.parametrize("seed", dict.fromkeys((*SEEDS, *KEPT)))
def test_all_are_answered_once_and_nobody_hears_what_is_anothers(seed: str) -> None:
    """The engine raises nothing, breaks no rule, leaks no mark, and lets go of all who leave."""
    report = run_world(seed)
    assert not report.wrong, f"{report.wrong}\nsee it again with: make simulate SEEDS={seed}"
    assert report.outcomes["result"] > 0


def test_a_seed_gives_one_history() -> None:
    """Byte for byte, of all that the engine was told and has ordered; another seed gives another."""
    first, again, other = (run_world(seed) for seed in ("28", "28", "29"))
    assert (first.history, first.messages, first.told) == (again.history, again.messages, again.told)
    assert first.history != other.history


def test_each_fault_strikes_and_each_world_is_spared_some() -> None:
    worlds = [World(seed) for seed in SEEDS]
    has = Counter(fault for world in worlds for fault in world.faults)
    assert all(0 < has[fault] < len(worlds) for fault in FAULTS)
    assert any(not world.faults for world in worlds)


def _asking() -> tuple[PipeClient, Channel]:
    """A client that has called a tool, as 1."""
    client = PipeClient(World("1").network, 1, "s0", "")
    client.is_rude = False
    client.pipe = Channel(ChannelId(9), client)
    assert client.call() == 1
    return client, client.pipe


ANSWER: Final = b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"mk1:1"}]}}'


def test_a_good_answer_is_one() -> None:
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
def test_a_client_sees_what_is_not_owed(messages: tuple[bytes, ...], what: str) -> None:
    client, pipe = _asking()
    with pytest.raises(Wrong, match=what):
        for message in messages:
            client.receive(pipe, Send(pipe.number, message))


def test_a_client_sees_an_answer_on_another_channel() -> None:
    client, _ = _asking()
    other = Channel(ChannelId(10), client)
    with pytest.raises(Wrong, match="another channel"):
        client.receive(other, Send(other.number, ANSWER))
