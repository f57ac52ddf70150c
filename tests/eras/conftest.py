"""These tests share raw clients with those of the transport matrix, and processes with those of the real peers."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parent / "matrix", HERE.parent / "matrix" / "peers", HERE.parent / "real"):
    sys.path.insert(0, str(folder))
