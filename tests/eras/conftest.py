"""Puts the raw clients of `tests/matrix`, the process helpers of `tests/real` and the oracle's helpers of `tests/core`
on the path."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE, *(HERE.parent / name for name in ("matrix", "matrix/peers", "real", "core"))):
    sys.path.insert(0, str(folder))
