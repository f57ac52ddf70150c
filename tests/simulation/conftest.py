"""Puts the helpers of the engine's tests (`checked_engine`, `stateless_driving`) on the path of the simulation."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in (Path(__file__).parents[1] / "core", Path(__file__).parent):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
