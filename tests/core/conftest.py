"""What holds for every engine of these tests that is overheard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from overheard import Overheard


@pytest.fixture(autouse=True)
def _nothing_is_owed_at_rest() -> Iterator[None]:
    """Where a conversation was left at rest, everybody has got what was asked for."""
    Overheard.made.clear()
    yield
    for engine in Overheard.made:
        if engine.is_at_rest:
            engine.finish()
    Overheard.made.clear()
