"""Tests that each fuzz target holds on its own corpus: `fuzz/<name>.py` on every file of `fuzz/corpus/<name>/`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from each_row import each_row

FUZZ = Path(__file__).parent.parent / "fuzz"
TARGETS = sorted(path.stem for path in FUZZ.glob("*.py"))
SEEDS = [(name, seed) for name in TARGETS for seed in sorted((FUZZ / "corpus" / name).glob("*")) if seed.is_file()]


@cache
def target(name: str) -> Callable[[bytes], None]:
    # Loaded by path under a name of its own, as targets are called like the modules they test.
    spec = importlib.util.spec_from_file_location(f"fuzz_{name}", FUZZ / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    test_one_input: Callable[[bytes], None] = module.test_one_input
    return test_one_input


@each_row("name, seed", SEEDS)
def test_target_holds_on_its_seed(name: str, seed: Path) -> None:
    """No seed, found or made, breaks the invariant again."""
    target(name)(seed.read_bytes())


def test_targets_and_corpora_belong_together() -> None:
    """Every target has seeds, and every corpus a target."""
    assert sorted({name for name, _ in SEEDS}) == TARGETS
    assert sorted(path.name for path in (FUZZ / "corpus").iterdir() if path.is_dir()) == TARGETS
