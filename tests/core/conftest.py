"""Runs the final oracle check of every `CheckedEngine`, checks that dialogues end, and compares snapshots."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import snapshot
from checked_engine import CheckedEngine
from dialogue import Dialogue

REWRITES = "SNAPSHOTS"
"""The environment variable that makes the tests write their snapshots anew instead of comparing them."""


@pytest.fixture(autouse=True)
def _nothing_is_owed_at_rest() -> Iterator[None]:
    """Checks after each test that an engine at rest owes nothing to its peers."""
    CheckedEngine.made.clear()
    Dialogue.made.clear()
    yield
    for engine in CheckedEngine.made:
        if engine.is_at_rest:
            engine.finish()
    CheckedEngine.made.clear()


def _nobody_got_more() -> None:
    """Checks that the dialogues of a test end with nothing unexpected."""
    for play in Dialogue.made:
        play.finish()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Compares what the engines of a test did with the snapshot of the test, if it has one."""
    path, name = snapshot.place_of(pyfuncitem.nodeid)
    kept = snapshot.read(path).get(name)
    if kept is None:
        outcome = yield
        _nobody_got_more()
        return outcome
    with snapshot.recorded() as found:
        outcome = yield
    _nobody_got_more()
    if os.environ.get(REWRITES):
        snapshot.write(path, name, found.lines)
    elif changed := snapshot.difference(kept, found.lines):
        pytest.fail(f"its snapshot has changed; if that is meant, run `make snapshots`:\n{changed}", pytrace=False)
    return outcome
