"""Both event loops for every asynchronous test; hypothesis without deadlines, for machines are noisy."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import HealthCheck, settings

# Hundreds of processes start, and what they import is compiled once, whatever the environment says: else each compiles
# all of it, which takes most of them longer than what they do.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Half the usual number of examples, so that all of it takes minutes; EXAMPLES=1000 looks further.
settings.register_profile(
    "default",
    max_examples=int(os.environ.get("EXAMPLES", "50")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with real peers take longest, and wait most of that: they begin first, beside those that compute."""
    items.sort(key=lambda item: "real" not in item.path.parts)


def pytest_sessionfinish() -> None:
    """What is measured is written down here: xdist gives its processes seconds to end; a busy machine takes more."""
    measuring = sys.modules.get("coverage")
    if measuring is not None and (current := measuring.Coverage.current()) is not None:
        current.save()


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend = request.param
    assert isinstance(backend, str)
    return backend
