"""Clients and servers of all revisions have the same conversation, as far as each revision can express it.

A scripted client of one revision meets a scripted server of one revision: directly where they are of the same, which
proves the scripts, and through the proxy. What comes of each scenario is compared with a table; every frame that either
side hears must be valid in its own revision, by the official schema.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import validators
from era_cells import CELLS, Broken, Cell, Records, records
from scenarios import SCENARIOS, may_hear
from scripted_client import Heard

each_cell = pytest.mark.parametrize("cell", CELLS, ids=str)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Records]:
    with records(tmp_path_factory.mktemp("eras")) as started:
        yield started


@pytest.mark.parametrize("name", SCENARIOS)
@each_cell
def test_the_conversation_is_the_same_in_all_eras(recorded: Records, cell: Cell, name: str) -> None:
    outcome = recorded.get(cell).outcomes[name]
    if isinstance(outcome, Broken):
        pytest.fail(outcome.trace, pytrace=False)
    assert outcome == SCENARIOS[name].expect(cell.pair)


def found_in(heard: list[Heard], revision: str, *, is_from_client: bool) -> list[str]:
    return [
        f"{fault}, in {str(frame)[:500]}"
        for frame, of in heard
        for fault in validators.faults(revision, frame, is_from_client=is_from_client, of=of)
    ]


def method_of(heard: Heard) -> object:
    return heard.frame.get("method") if isinstance(heard.frame, dict) else None


@pytest.mark.real
@each_cell
def test_every_frame_the_client_hears_is_valid_in_its_revision(recorded: Records, cell: Cell) -> None:
    heard = recorded.get(cell).client
    assert heard
    assert found_in(heard, cell.pair.client, is_from_client=False) == []


@pytest.mark.real
@each_cell
def test_every_frame_the_server_hears_is_valid_in_its_revision(recorded: Records, cell: Cell) -> None:
    heard = [one for one in recorded.get(cell).server if method_of(one) not in may_hear(cell.pair)]
    assert heard
    assert found_in(heard, cell.pair.server, is_from_client=True) == []
