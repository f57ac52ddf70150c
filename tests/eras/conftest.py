"""These tests share raw clients with those of the transport matrix, processes with those of the real peers, and the
judgement of a proxy with those of the engine."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE, *(HERE.parent / name for name in ("matrix", "matrix/peers", "real", "core"))):
    sys.path.insert(0, str(folder))
