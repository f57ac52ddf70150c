"""Puts the process helpers of the tests with real peers (`tests/real`) on the path."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE / "peers", HERE.parent / "real"):
    sys.path.insert(0, str(folder))
