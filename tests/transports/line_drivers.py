"""The drivers of lines under test: asyncio's callbacks, on uvloop too if it is there, and the portable one."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

DRIVERS = ["callbacks", "portable", "trio"]
if importlib.util.find_spec("uvloop") is not None:
    DRIVERS.append("uvloop")


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    name = request.param
    assert isinstance(name, str)
    return name


@pytest.fixture
def anyio_backend(driver: str) -> tuple[str, dict[str, Any]]:
    return "trio" if driver == "trio" else "asyncio", {"use_uvloop": True} if driver == "uvloop" else {}


@pytest.fixture
def protocols(driver: str) -> bool:
    return driver != "portable"
