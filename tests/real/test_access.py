"""Official clients log in through isthmus: it asks for tokens of npm oidc-provider, and nothing behind it does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from rig import CLIENTS, PEERS, PYTHON_1, PYTHON_2, REAL, launched, require, serve

pytestmark = pytest.mark.real

PROVIDER: Final = REAL / "idp/node_modules"
TOOLBOX: Final = Path(__file__).resolve().parents[1] / "app/peers/toolbox.py"
LIFETIME_S: Final = 4
TIMEOUT_S: Final = 90.0


@pytest.mark.parametrize("python", [PYTHON_1, PYTHON_2], ids=["python-1", "python-2"])
def test_an_official_client_logs_in_and_keeps_its_session_over_new_tokens(python: Path, tmp_path: Path) -> None:
    """The client finds the provider by the challenge and the metadata. Its token expires and is renewed: the session
    and its process stay, since the person does."""
    provider = ["node", PEERS / "identity_provider.mjs", require(PROVIDER)]
    with launched(provider, folder=tmp_path, env={"AT_TTL": str(LIFETIME_S)}, code=None) as process:
        issuer = process.wait_line(r"listening on (\S+)")[1]
        access = {"scope": ["mcp:read"]}
        settings = {
            "core": {"port": 0},
            "storage": {"root": str(tmp_path / "data")},
            "auth": {"issuers": [{"url": issuer}]},
            "servers": [{"id": "tools", "upstream": {"command": [sys.executable, str(TOOLBOX)]}, "access": access}],
        }
        config = tmp_path / "isthmus.json"
        config.write_text(json.dumps(settings), encoding="utf-8")
        with serve(config, folder=tmp_path) as proxy:
            calls = [proxy.url, str(LIFETIME_S + 1), "environment", "environment"]
            command = [require(python), CLIENTS / "login_python.py", *calls]
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
            assert done.returncode == 0, done.stderr
    lines: list[dict[str, Any]] = list(map(json.loads, done.stdout.splitlines()))
    first, second = (json.loads(line["text"])["pid"] for line in lines[:2])
    assert first == second
    assert lines[-1] == {"logins": 1}
