"""Tests of the commands with shared stores that nobody serves: they end with what was tried and what to set."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from isthmus.app.stores import stores
from record_servers import SECRET, free_port

TOOLBOX = str(Path(__file__).parents[1] / "peers" / "toolbox.py")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    """The path of a configuration, and the port at which both stores are to be."""
    monkeypatch.setattr(stores, "TRIAL_RETRY_S", 0.2)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("SHARED_SECRET", SECRET)
    port = free_port()
    document = {
        "core": {"port": 0, "link_keys": ["${SHARED_SECRET}"]},
        "sessions": {"request_state_keys": ["${SHARED_SECRET}"]},
        "storage": {
            "root": str(tmp_path / "data"),
            "records": f"redis://:${{SHARED_SECRET}}@127.0.0.1:{port}/0",
            "blobs": f"s3://bucket/x?endpoint=http://127.0.0.1:{port}",
        },
        "servers": [{"id": "a", "upstream": {"command": [sys.executable, TOOLBOX, "a"]}}],
    }
    path = tmp_path / "isthmus.json"
    path.write_text(json.dumps(document))
    return str(path), port


def test_serve_without_its_stores(config: tuple[str, int], command: Run) -> None:
    path, port = config
    code, out, err = command("serve", path)
    assert (code, out) == (1, "")
    assert f"storage.records: redis://127.0.0.1:{port}/0 cannot be used: " in err
    assert "refused; start it, or correct storage.records" in err
    assert SECRET not in err and "Traceback" not in err


def test_check_without_the_stores(config: tuple[str, int], command: Run) -> None:
    """A row says of each store why it failed, and the servers are asked all the same."""
    path, _ = config
    code, out, err = command("check", path)
    assert code == 1
    lines = out.splitlines()
    assert [line.split()[:2] for line in lines if line.startswith(("records", "blobs", "a "))] == [
        ["records", "FAILED"],
        ["blobs", "FAILED"],
        ["a", "ready"],
    ]
    assert "some checks failed: see above" in lines
    assert SECRET not in out + err
