"""Settings of all tests: both event loops for asynchronous tests, and hypothesis without deadlines, as machines are
noisy."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Iterator

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

# Hundreds of processes start. Their imports are compiled once, whatever the environment says. Otherwise each process
# compiles them anew, which takes most of them longer than their work.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Without a buffer Python drops the rest of a write that is interrupted, and servers and clients of tests write much.
os.environ.pop("PYTHONUNBUFFERED", None)

# Most servers of the tests are on this machine, and a proxy of the environment is for other ones.
for _name in [name for name in os.environ if name.upper().endswith("_PROXY")]:
    del os.environ[_name]

# Gateways of tests put the files with their tokens here, and commands look for them here.
_runtime_folder = tempfile.TemporaryDirectory(prefix="isthmus-run-")
os.environ["XDG_RUNTIME_DIR"] = _runtime_folder.name

# A quarter of the usual number of examples: the planted bugs that such tests notice need no more. EXAMPLES=1000 looks
# further.
settings.register_profile(
    "default",
    max_examples=int(os.environ.get("EXAMPLES", "25")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("default")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collects the tests with the garbage collector off, and hides them from it: tens of thousands of tests are no
    garbage, and each full collection of a test would look at all of them. What little garbage there is stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts tests with real peers first. They take longest and mostly wait, so they run beside tests that compute."""
    items.sort(key=lambda item: "real" not in item.path.parts)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Reports a test of a process of xdist by one message if it passes. By default there are five, of which four say
    nothing, and they take as long as most tests do."""
    if not hasattr(item.config, "workerinput"):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


def pytest_sessionfinish() -> None:
    """Writes coverage data here. xdist gives its processes only seconds to end, and a busy machine takes more."""
    measuring = sys.modules.get("coverage")
    if measuring is not None and (current := measuring.Coverage.current()) is not None:
        current.save()


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend = request.param
    assert isinstance(backend, str)
    return backend
