"""Puts the raw clients of `tests/matrix` on the path."""

from __future__ import annotations

import sys
from pathlib import Path

MATRIX = Path(__file__).resolve().parents[1] / "matrix"
for folder in (MATRIX / "peers", MATRIX):
    sys.path.insert(0, str(folder))
