"""Tests that the product's own drivers pass the checks of drivers."""

from __future__ import annotations

from pathlib import Path

import gateway_targets as targets
import pytest
from isthmus.app.driver_checks import CHECKS, Check


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_product_keeps_the_contract(check: Check, tmp_path: Path) -> None:
    targets.play(check, targets.product(tmp_path, driver="protocols", loop="asyncio"))


@pytest.mark.parametrize("check", targets.CHOSEN, ids=lambda check: check.name)
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_its_streams_keep_the_contract(loop: str, check: Check, tmp_path: Path) -> None:
    targets.play(check, targets.product(tmp_path, driver="anyio", loop=loop))
