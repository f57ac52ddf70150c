"""Tests that the engine orders what the contract's table says, and that each cell of the table is reached.

`CheckedEngine`, which the tests of the engine and the simulation use, fails on an order that the table does not have
for its channel. This file shows that no cell is there in vain.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from driving import connect, driver
from isthmus.core.base.effects import SendEvents
from isthmus.core.testing.contract import ORDERS, Kind
from streaming import call_of

ROOT = Path(__file__).parents[3]
CONVERSATIONS = (
    "engine/test_event_store.py::test_a_client_is_sent_as_many_events_in_memory_as_it_takes",
    "engine/test_files.py::test_a_link_of_a_session_that_has_ended_is_refused_where_files_are_of_it",
    "engine/test_files.py::test_a_link_to_an_upload_serves_it_too",
    "engine/test_hostile_peers.py::test_notifications_open_high_pauses_their_sender_until_some_have_arrived",
    "engine/test_http_rules.py::test_delete_ends_the_session_with_204_and_is_404_afterwards",
    "engine/test_inputs.py::test_an_answer_that_comes_in_parts_is_passed_as_they_come",
    "engine/test_legacy_sse.py::test_a_server_that_takes_nothing_stops_its_clients_messages",
    "engine/test_legacy_sse.py::test_greeting_timeout_begins_anew_with_a_handshake_that_failed",
    "engine/test_limits.py::test_a_full_client_pauses_the_server_that_feeds_it_until_it_has_drained",
    "engine/test_limits.py::test_the_error_of_a_call_at_stop_says_whether_it_may_have_run",
    "files/transfer/test_resumable.py::test_a_new_request_interrupts_an_old_connection",
    "upstream/test_progress.py::test_a_group_is_one_order_and_all_of_it_can_be_resumed",
    "replicas/test_owners_of_names.py::test_a_request_for_another_replica_is_passed_on_and_answered_here_if_that_is_gone",
    "testing/test_cells.py::test_events_come_together_on_a_stream_that_is_resumed",
)
"""Tests of the engine that reach all cells together."""
NEVER_READ = {Kind.CLIENT_GET, Kind.CLIENT_DELETE, Kind.CLIENT_EVENT_PIPE, Kind.UPLOAD, Kind.DOWNLOAD}
"""Channels on which a `Pause` asks nothing of a driver. Random worlds reach some of them."""


def test_events_come_together_on_a_stream_that_is_resumed() -> None:
    world = driver()
    client = connect(world, "http", "http")
    call = call_of(world, client)
    text = '{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{},"progress":{}}}}}'
    steps = [text.format(call.received.id, number).encode() for number in range(6)]
    world.engine.receive_messages(call.received.channel, steps[:3], world.now)
    world.end(call.channel)
    channel = client.resume("1-3")
    effects = world.engine.receive_messages(call.received.channel, steps[3:], world.now)
    assert [each.channel for each in effects if isinstance(each, SendEvents)] == [channel]


def test_each_cell_is_reached(tmp_path: Path) -> None:
    tests = [f"tests/core/{each}" for each in CONVERSATIONS]
    env = {**os.environ, "CELLS": str(tmp_path / "cells"), "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "cells_plugin", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    reached = {(Kind(kind), order) for kind, order in json.loads((tmp_path / "cells").read_text())}
    idle = {(kind, name) for kind in NEVER_READ for name in ("Pause", "Resume")}
    assert reached - idle == {(kind, order.__name__) for kind, orders in ORDERS.items() for order in orders} - idle


def test_an_order_that_the_table_lacks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check within `CheckedEngine` can fail."""
    from isthmus.core.base.effects import Dial

    monkeypatch.setitem(ORDERS, Kind.DIALLED_REQUEST, ORDERS[Kind.DIALLED_REQUEST] - {Dial})
    with pytest.raises(AssertionError, match="Dial comes to a dialled request"):
        connect(driver(), "http", "http")
