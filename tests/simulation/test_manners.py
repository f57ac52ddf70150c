"""Tests of peers with manners: mild worlds, in which each request gets its good answer, and planted faults."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any, Final

import manners
import pytest
from isthmus.core.routing import server_channels
from isthmus.core.routing.dispatcher import Dispatcher
from isthmus.core.state.upstream_channels import UpstreamStreamRole
from isthmus.core.upstream.handshake import Handshaker
from isthmus.core.upstream.session_checks import SessionChecks
from isthmus.core.wire.http.response import ResponseReader
from isthmus.core.wire.ndjson import LineReader
from mild import MildWorld
from simulation import World
from worlds import run_world

SEEDS: Final = ("mild-4", "mild-20", "mild-21", "mild-22", "mild-wired-8", "mild-wired-17")


def test_peers_of_each_manner_are_served() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        report = run_world(seed)
        assert not report.wrong, f"{report.wrong}\nsee it again with: make simulate SEEDS={seed}"
        counts += report.counts
    used = {name.removeprefix("manner ") for name in counts if name.startswith("manner ")}
    assert used == {*manners.MANNERS, "noisy client"}


def test_worlds_differ_in_their_manners() -> None:
    worlds = [World(str(number)) for number in range(24)]
    has = Counter(manner for world in worlds for manner in world.network.manners)
    drawn = set(manners.MANNERS)
    assert set(has) == drawn
    assert all(count < len(worlds) for count in has.values())


def test_a_manner_that_no_world_draws_can_be_named() -> None:
    assert World("1/future,s0").network.manners == {"future"}
    assert World("1/s0").network.manners == MildWorld("mild-1/s0").network.manners == set()


def test_a_log_line_never_says_that_it_is_a_message() -> None:
    rng = random.Random(0)
    lines = {manners.log_line(rng, 7) for _ in range(300)}
    assert len(lines) == len(manners.LOGS)
    assert not any(re.search(rb'^\W*"jsonrpc"', line) for line in lines)


# --- Planted faults ---------------------------------------------------------------------------------------------------


def _believe(self: Any, link: Any, role: Any, message: bytes, error: Any) -> None:
    """Ends the request whose id stands in what is no message."""
    found = re.search(rb'"id":(\d+),"(?:result|error)', message)
    if found is not None and int(found[1]) in link.pending:
        self._receive_reply(link, role, server_channels.Frame(error=b'{"code":1,"message":"x"}'), int(found[1]))


def _insist(self: Any, link: Any, role: Any, frame: Any, number: int, receive: Any = Dispatcher._receive_reply) -> None:
    """Takes no answer from the session's own stream."""
    if not isinstance(role, UpstreamStreamRole):
        receive(self, link, role, frame, number)


def _read_all(self: Any, *given: Any, begin: Any = ResponseReader.__init__, **named: Any) -> None:
    """Reads responses to notifications like others."""
    begin(self, *given, **named)
    self._has_messages = True


@pytest.mark.parametrize(
    ("owner", "name", "instead", "seed", "what"),
    [
        (Dispatcher, "_receive_garbage", _believe, "mild-23", "nothing went wrong"),
        (Dispatcher, "_receive_reply", _insist, "mild-23", "nothing went wrong"),
        (ResponseReader, "__init__", _read_all, "mild-wired-16", "nothing went wrong"),
        (server_channels, "FINAL", range(400, 600), "mild-22", "was not asked again"),
        (Handshaker, "restart", lambda *given, **named: False, "mild-21", "an earlier process was still ending"),
        (LineReader, "receive_eof", lambda self: [], "mild-wired-17", "was left without answers"),
        (SessionChecks, "_may_ask", lambda *given: False, "163", "gets nothing any more"),
    ],
)
def test_a_planted_fault_is_seen(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, instead: Any, seed: str, what: str
) -> None:
    monkeypatch.setattr(owner, name, instead)
    assert re.search(what, run_world(seed, is_checked=False).wrong)
