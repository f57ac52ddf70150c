"""Tests of regular expressions that take exponential time in an engine that goes back: here no server's text does."""

from __future__ import annotations

import json

import pytest
from driving import connect, driver
from file_scenes import Scene, names
from hanging import no_hang
from isthmus.core.base.name_filter import NAME_MAX_CHARS, NameFilter
from isthmus.core.base.plan import ArtifactProducer, Kind, LocatorMode, OutputLocator, ServerPlan
from isthmus.core.files.calls.paths_in_text import TEXT_MAX_CHARS

HOSTILE = {"(a+)+$": "a", "(a|aa)+$": "a", "(.*a){20}": "a" * 19 + "b" * 40 + "\n"}
"""Expressions, and what to repeat in a text without them. An engine that goes back takes long to say so."""


@pytest.mark.parametrize("pattern", HOSTILE)
def test_names_of_servers_do_not_hang_a_filter(pattern: str) -> None:
    filters = NameFilter(exclude_regexes=(pattern, "hidden"))
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, tools=filters))
    client = connect(world, "pipe", "s", capabilities='{"tools":{}}')
    long = "a" * (NAME_MAX_CHARS - 1) + "!"
    channel = client.request("1", "tools/list")
    tools = [{"name": name, "inputSchema": {}} for name in (long, "hidden", "seen")]
    with no_hang():
        world.answer(world.take_sent("tools/list"), json.dumps({"tools": tools}))
    listed = json.loads(world.messages(channel)[-1])["result"]["tools"]
    assert [tool["name"] for tool in listed] == [long, "seen"]


@pytest.mark.parametrize("pattern", HOSTILE)
def test_results_of_servers_do_not_hang_the_search_for_paths(pattern: str) -> None:
    locator = OutputLocator(mode=(LocatorMode.REGEX,), output_path_regexes=(pattern, r"saved (\S+)"))
    plan = ServerPlan(id="s", kind=Kind.PIPE, producers=(ArtifactProducer(tools=("*",), output_locator=locator),))
    text = "saved out.txt\n" + (HOSTILE[pattern] * TEXT_MAX_CHARS)[:TEXT_MAX_CHARS] + "!"
    with no_hang():
        found = Scene(plan).call("t", text, writes={"out.txt": b"x"})
    assert names(found) == ["out.txt"]
