"""Tests that clients and servers of all revisions have the same conversation, as far as each revision can express it.

A scripted client of one revision meets a scripted server of one revision: directly if the revisions are the same, which
proves the scripts, through the proxy, and through a profile of that server alone. The result of each scenario is
compared with a table, and every frame that either side receives must be valid in its own revision, by the official
schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
import validators
from each_row import each_row
from era_cells import CELLS, Broken, Cell, Records, records
from scenarios import SCENARIOS, may_receive
from scripted_client import ReceivedFrame

each_cell = pytest.mark.parametrize("cell", CELLS, ids=str)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Records]:
    with records(tmp_path_factory.mktemp("eras")) as started:
        yield started


NOT_AT_PROFILES: Final = {
    "handshake": "a profile introduces itself: its own name, version and capabilities",
    "pages": "a profile puts the lists of its servers together, and cuts pages of its own",
}
"""Scenarios that differ at a profile, and why."""


@each_cell
@each_row("name", SCENARIOS)
def test_the_conversation_is_the_same_in_all_eras(recorded: Records, cell: Cell, name: str) -> None:
    if cell.way == "profile" and name in NOT_AT_PROFILES:
        return
    outcome = recorded.get(cell).outcomes[name]
    if isinstance(outcome, Broken):
        pytest.fail(outcome.trace, pytrace=False)
    assert outcome == SCENARIOS[name].expect(cell.pair)


def found_in(received: list[ReceivedFrame], revision: str, *, is_from_client: bool) -> list[str]:
    return [
        f"{fault}, in {str(frame)[:500]}"
        for frame, of in received
        for fault in validators.faults(revision, frame, is_from_client=is_from_client, of=of)
    ]


def method_of(received: ReceivedFrame) -> object:
    return received.frame.get("method") if isinstance(received.frame, dict) else None


@pytest.mark.real
@each_cell
def test_every_frame_the_client_receives_is_valid_in_its_revision(recorded: Records, cell: Cell) -> None:
    received = recorded.get(cell).client
    assert received
    assert found_in(received, cell.pair.client, is_from_client=False) == []


@pytest.mark.real
@each_cell
def test_every_frame_the_server_receives_is_valid_in_its_revision(recorded: Records, cell: Cell) -> None:
    received = [one for one in recorded.get(cell).server if method_of(one) not in may_receive(cell.pair)]
    assert received
    assert found_in(received, cell.pair.server, is_from_client=True) == []
