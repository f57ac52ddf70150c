"""These tests share how processes are started and ended with those of the real peers."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE / "peers", HERE.parent / "real"):
    sys.path.insert(0, str(folder))
