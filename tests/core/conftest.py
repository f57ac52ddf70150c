"""What holds for every engine of these tests that is overheard, and the stories of those that have one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import stories
from overheard import Overheard

REWRITES = "STORIES"
"""In the environment: stories are written anew, not compared."""


@pytest.fixture(autouse=True)
def _nothing_is_owed_at_rest() -> Iterator[None]:
    """Where a conversation was left at rest, everybody has got what was asked for."""
    Overheard.made.clear()
    yield
    for engine in Overheard.made:
        if engine.is_at_rest:
            engine.finish()
    Overheard.made.clear()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """A test that has a story tells it as it is kept."""
    path = stories.path_of(pyfuncitem.nodeid)
    if not path.exists():
        return (yield)
    with stories.told() as found:
        outcome = yield
    if os.environ.get(REWRITES):
        path.write_text("".join(f"{line}\n" for line in found.lines), encoding="utf-8")
        return outcome
    kept = path.read_text(encoding="utf-8").splitlines()
    if changed := stories.difference(kept, found.lines):
        pytest.fail(f"its story has changed; if that is meant, `make stories`:\n{changed}", pytrace=False)
    return outcome
