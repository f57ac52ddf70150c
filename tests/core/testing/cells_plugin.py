"""A plugin of pytest that writes the cells of the contract's table that the tests of its run have reached, as JSON, to
the file that `CELLS` names."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from checked_engine import CheckedEngine
from isthmus.core.base.effects import Effect

_cells: set[tuple[str, str]] = set()
_check_orders = CheckedEngine._check_orders


def _note(self: CheckedEngine, effects: list[Effect]) -> None:
    _check_orders(self, effects)
    _cells.update((kind.value, order.__name__) for kind, order in self.cells)


def pytest_configure(config: Any) -> None:
    CheckedEngine._check_orders = _note  # type: ignore[method-assign]


def pytest_unconfigure(config: Any) -> None:
    Path(os.environ["CELLS"]).write_text(json.dumps(sorted(_cells)))
