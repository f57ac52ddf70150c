"""Tests that the drivers of the examples pass the checks of drivers."""

from __future__ import annotations

from pathlib import Path

import gateway_targets as targets
import pytest
from isthmus.app.driver_checks import CHECKS, Check

EXAMPLES = {"threaded": targets.threaded, "asgi_process": targets.asgi_process}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_keep_the_contract(example: str, check: Check, tmp_path: Path) -> None:
    targets.play(check, EXAMPLES[example](targets.example_folder(tmp_path)))


@pytest.mark.parametrize("check", targets.CHOSEN, ids=lambda check: check.name)
def test_the_example_that_asks_a_url_keeps_the_contract(check: Check, tmp_path: Path) -> None:
    targets.play(check, targets.asgi_url(targets.example_folder(tmp_path)))
