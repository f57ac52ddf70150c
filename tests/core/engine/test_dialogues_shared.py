"""Dialogues of several clients with one shared process: ids, questions, log levels and subscriptions are kept apart."""

from __future__ import annotations

import pytest
from dialogue import Dialogue
from isthmus.core import Kind, Limits, ServerPlan, Sharing


def test_each_client_is_answered_under_its_own_id() -> None:
    play = Dialogue(ServerPlan(id="files", kind=Kind.PIPE, sharing=Sharing.CONCURRENT))
    files, alice, bob = play.server, play.client("alice"), play.client("bob", "http")
    alice.meets(files)
    bob.meets(files)
    hers = alice.asks("tools/call", {"name": "x"}, id=7)
    first = files.is_asked("tools/call", {"name": "x"})
    his = bob.asks("tools/call", {"name": "x"}, id=7)
    second = files.is_asked("tools/call", {"name": "x"})
    files.answers(second, {"n": 2})
    bob.is_answered(his, {"n": 2})
    files.answers(first, {"n": 1})
    alice.is_answered(hers, {"n": 1})
