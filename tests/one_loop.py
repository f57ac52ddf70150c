"""One event loop, asyncio, for a test file that imports this: what is tested is the same on both, and what it is built
of has tests on both."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
