"""Which calls are plain: their large answers pass unread."""

from __future__ import annotations

import json

import pytest
from driving import connect, driver
from isthmus.core.base.effects import Connected
from isthmus.core.base.name_filter import Selection
from isthmus.core.base.plan import AutoFiles, Kind, ServerPlan
from isthmus.core.routing.fast_path_rules import METHODS

LARGE = 300_000


def passes(method: str, params: str = "{}", *, plan: ServerPlan | None = None, revision: str = "2025-11-25") -> bool:
    """Whether the answer to a call may be passed on in parts."""
    world = driver(plan or ServerPlan(id="http", kind=Kind.HTTP))
    client = connect(world, "http", "http", revision=revision)
    client.request("1", method, params)
    heard = world.hear(method)
    world.open(heard.channel, Connected())
    return world.engine.passes(heard.channel, b'{"jsonrpc":"2.0","id":%d,"result":{"x":"' % heard.id, LARGE)


@pytest.mark.parametrize(
    "method",
    ["tools/call", "prompts/get", "resources/read", "completion/complete", "tools/list", "vendor/own"],
)
def test_what_teaches_nothing_about_its_server_is_plain(method: str) -> None:
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
def test_what_may_want_to_be_a_task_is_not(params: str, is_plain: bool) -> None:
    """Or cannot be told from that at a glance."""
    assert passes("tools/call", params) is is_plain


@pytest.mark.parametrize(
    "more", [{"tools": Selection(("t",))}, {"auto_files": AutoFiles()}, {"passes_authorization": False}]
)
def test_where_something_has_a_say_nothing_is(more: dict[str, object]) -> None:
    plan = ServerPlan(id="http", kind=Kind.HTTP, **more)  # type: ignore[arg-type]
    assert passes("prompts/get", '{"name":"t"}', plan=plan) is ("passes_authorization" in more)


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_between_two_of_one_revision_calls_are_plain(revision: str) -> None:
    assert passes("tools/call", json.dumps({"name": "t"}), revision=revision)
