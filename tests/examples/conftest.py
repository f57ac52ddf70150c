"""Puts the examples into a folder, with links in place of their copy of the core."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from ground import ROOT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with `mcp_engine`, msgspec and the examples. `test_vendoring` shows that a real copy works too; a link
    is compiled already."""
    (tmp_path / "mcp_engine").symlink_to(ROOT / "core")
    (tmp_path / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    for name in ("threaded.py", "asgi.py", "asgi_process.py", "asgi_url.py"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    return tmp_path
