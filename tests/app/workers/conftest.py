"""The configuration of the workers under test."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from worker_runs import TOOLBOX


@pytest.fixture
def write_config(tmp_path: Path) -> Callable[..., Path]:
    """Writes a configuration with one server on stdio that takes uploads."""

    def write(*, drain_seconds: float = 20, **settings: Any) -> Path:
        path = tmp_path / "isthmus.json"
        uploads = {"type": "upload_consumer", "tools": ["echo"], "file_path_argument": "text"}
        server = {"id": "a", "upstream": {"command": [sys.executable, TOOLBOX, "a"]}, "adapters": [uploads]}
        found = {
            "core": {"port": 0, "drain_seconds": drain_seconds, "unix_socket": str(tmp_path / "http.sock")},
            "storage": {"root": str(tmp_path / "data")},
            "servers": [{**server, "unix_socket": str(tmp_path / "lines.sock")}],
        }
        path.write_text(json.dumps({**found, **settings}))
        return path

    return write
