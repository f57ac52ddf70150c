"""Tests of the checks of drivers: the examples and the product pass them, and planted faults of the examples' drivers
are found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import targets
from ground import ROOT
from isthmus.core.testing import CHECKS, Check, CheckFailed, CheckSkipped, Start
from planting import Bug, read_bug

FAULTS = [read_bug(path) for path in sorted(Path(__file__).with_name("faults").glob("*.patch"))]
BY_NAME = {check.name: check for check in CHECKS}
FAULT_TIMEOUT_S = 2.0
"""A wait that a fault lasts out. A sound driver is not measured by it."""
QUICK: dict[str, Callable[[Path], Start]] = {
    "threaded": targets.threaded,
    "asgi_process": targets.asgi_process,
    "product": targets.product,
}
SLOW: dict[str, Callable[[Path], Start]] = {
    "asgi_url": targets.asgi_url,
    "product on anyio": lambda folder: targets.product(folder, driver="anyio"),
    "product on trio": lambda folder: targets.product(folder, driver="anyio", loop="trio"),
}


def play(check: Check, start: Start) -> None:
    try:
        check(start)
    except CheckSkipped as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
@pytest.mark.parametrize("target", QUICK)
def test_drivers_keep_the_contract(target: str, check: Check, tmp_path: Path) -> None:
    play(check, QUICK[target](targets.example_folder(tmp_path)))


@pytest.mark.real
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
@pytest.mark.parametrize("target", SLOW)
def test_more_drivers_keep_the_contract(target: str, check: Check, tmp_path: Path) -> None:
    play(check, SLOW[target](targets.example_folder(tmp_path)))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_planted_faults_are_found(fault: Bug, tmp_path: Path) -> None:
    """The named check fails with the fault, within seconds. `test_drivers_keep_the_contract` shows that it passes
    without."""
    start = QUICK["threaded" if "examples/threaded.py" in fault.changes else "asgi_process"]
    (name,) = fault.likely
    folder = targets.example_folder(tmp_path, fault.patched(ROOT))
    with pytest.raises(CheckFailed) as found:
        BY_NAME[name](start(folder), timeout_s=FAULT_TIMEOUT_S)
    print(fault.name, found.value)


def test_there_are_ten_faults_with_reasons() -> None:
    assert len(FAULTS) >= 10
    assert all("Breaks " in fault.prose for fault in FAULTS)
    assert {name for fault in FAULTS for name in fault.likely} <= set(BY_NAME)
