"""Tests of the fast path rules: which calls are plain, so that their large answers pass undecoded."""

from __future__ import annotations

import json

import pytest
from driving import connect, driver
from isthmus.core.base.events import Connected
from isthmus.core.base.name_filter import NameFilter
from isthmus.core.base.plan import AutoFiles, Kind, ServerPlan
from isthmus.core.routing.fast_path_rules import METHODS

LARGE = 300_000


def passes(method: str, params: str = "{}", *, plan: ServerPlan | None = None, revision: str = "2025-11-25") -> bool:
    """True if the answer to a call may be passed on in parts."""
    world = driver(plan or ServerPlan(id="http", kind=Kind.HTTP))
    client = connect(world, "http", "http", revision=revision)
    client.request("1", method, params)
    received = world.take_sent(method)
    world.open(received.channel, Connected())
    return world.engine.passes(received.channel, b'{"jsonrpc":"2.0","id":%d,"result":{"x":"' % received.id, LARGE)


@pytest.mark.parametrize(
    "method",
    ["tools/call", "prompts/get", "resources/read", "completion/complete", "tools/list", "vendor/own"],
)
def test_methods_whose_results_are_not_remembered_are_plain(method: str) -> None:
    assert passes(method) is (method in METHODS)
    assert {"tools/call", "prompts/get", "resources/read", "completion/complete"} == METHODS


@pytest.mark.parametrize(
    ("params", "is_plain"),
    [
        ('{"name":"t"}', True),
        ('{"name":"t","arguments":{"x":"y"}}', True),
        ('{"name":"t","task":{}}', False),
        ('{"name":"task"}', False),
        ('{"name":"t","t\\u0061sk":{}}', False),
        ('{"name":"\\u0061"}', False),
    ],
)
def test_a_call_that_may_be_a_task_is_not_plain(params: str, is_plain: bool) -> None:
    """A call that contains "task" anywhere, or an escape that might spell it, is not plain."""
    assert passes("tools/call", params) is is_plain


@pytest.mark.parametrize(
    "more", [{"tools": NameFilter(("t",))}, {"auto_files": AutoFiles()}, {"passes_authorization": False}]
)
def test_calls_under_a_name_filter_or_with_files_are_not_plain(more: dict[str, object]) -> None:
    plan = ServerPlan(id="http", kind=Kind.HTTP, **more)  # type: ignore[arg-type]
    assert passes("prompts/get", '{"name":"t"}', plan=plan) is ("passes_authorization" in more)


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_calls_between_peers_of_one_revision_are_plain(revision: str) -> None:
    assert passes("tools/call", json.dumps({"name": "t"}), revision=revision)
