"""Random changes of a server's tools, with lists and calls between them, against a plain reading of the rules.

The model knows what the server listed last, and whether it has said since that its list changed. It checks that

- a tool that differs from the approved one is in no list, and no call of it reaches the server;
- every other call reaches it, under the server's name;
- the proxy reads the list itself exactly when a call comes and it does not know the whole of it.
"""

from __future__ import annotations

import json
import random
from typing import Any, Final

import pytest
from dialogue import Dialogue
from isthmus.core import Era, Kind, ServerPlan
from isthmus.core.base.governance import Override, PinRules, Shown
from isthmus.core.governance.canonical import pinned

NAMES: Final = ("a", "b", "c")
RENAMES: Final = ({}, {"a": "z"}, {"a": "b", "b": "a"}, {"a": "c"})
SEEDS: Final = range(60)


def tool(name: str, version: int) -> dict[str, Any]:
    return {"name": name, "description": f"Version {version}.", "inputSchema": {"type": "object"}}


class Story:
    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.approved = {name for name in NAMES if rng.random() < 0.8}
        self.blocks, self.hides_new = rng.choice([(True, False), (True, True), (False, True)])
        self.shown: dict[str, str] = rng.choice(RENAMES)
        entries = tuple(pinned("tools", json.dumps(tool(name, 1)).encode()) for name in sorted(self.approved))
        self.play = Dialogue(
            ServerPlan(
                id="files",
                kind=Kind.PIPE,
                era=Era.HANDSHAKE,
                pins=PinRules(blocks=self.blocks, hides_new=self.hides_new, entries=entries),
                shown=Shown(overrides=tuple(Override(tool=raw, rename=new) for raw, new in self.shown.items())),
            )
        )
        self.alice = self.play.client("alice", "pipe")
        self.alice.meets(self.play.server)
        self.now: dict[str, int] = dict.fromkeys(NAMES, 1)  # the version of each tool that the server has
        self.known: dict[str, int] | None = None  # what it listed last, if it has not said since that it changed

    def passes(self, name: str, listed: dict[str, int]) -> bool:
        if name not in self.approved or name not in listed:
            return not self.hides_new
        return not self.blocks or listed[name] == 1

    def raw(self, name: str) -> str | None:
        """The server's tool that clients know by a name."""
        for raw, new in self.shown.items():
            if new == name:
                return raw
        return None if name in self.shown else name

    def page(self) -> dict[str, Any]:
        return {"tools": [tool(name, version) for name, version in self.now.items()]}

    def change(self) -> None:
        name = self.rng.choice(NAMES)
        if self.rng.random() < 0.3:
            self.now.pop(name, None)
        else:
            self.now[name] = self.rng.choice([1, 1, 2])
        if self.rng.random() < 0.6:
            self.play.server.notifies("tools/list_changed")
            self.alice.is_notified("tools/list_changed", ...)
            self.known = None

    def list(self) -> None:
        asked = self.alice.asks("tools/list")
        self.play.server.answers(self.play.server.is_asked("tools/list", ...), self.page())
        self.known = dict(self.now)
        came = self.play.expects(self.alice, "is answered", {"id": asked.id, "result": ...}, asked)
        expected = {
            self.shown.get(raw, raw)
            for raw in self.now
            if self.passes(raw, self.now) and self.raw(self.shown.get(raw, raw)) == raw
        }
        assert {one["name"] for one in came.what["result"]["tools"]} == expected

    def call(self) -> None:
        name = self.rng.choice((*NAMES, "z"))
        raw = self.raw(name)
        call = self.alice.asks("tools/call", {"name": name, "arguments": {}})
        if raw is None:
            self.alice.is_answered(call, error=-32602)
            return
        if self.known is None:
            self.play.server.answers(self.play.server.is_asked("tools/list", ...), self.page())
            self.known = dict(self.now)
        if self.passes(raw, self.known):
            received = self.play.server.is_asked("tools/call", ...)
            assert received.params["name"] == raw
            self.play.server.answers(received, {"content": []})
            self.alice.is_answered(call, ...)
        else:
            is_new = raw not in self.approved or raw not in self.known
            self.alice.is_answered(call, error=-32602 if is_new else -31009)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_changed_tool_is_shown_or_called(seed: int) -> None:
    story = Story(seed)
    for _ in range(25):
        story.rng.choice([story.change, story.list, story.call, story.call])()
    story.play.finish()
