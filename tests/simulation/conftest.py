"""The engine that is overheard, and the list of its tables, are those of its own tests."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in (Path(__file__).parents[1] / "core", Path(__file__).parent):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
