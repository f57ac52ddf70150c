"""Tests of the commands with files of MCP clients, and with servers that run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml
from command import Run, Session

TOOLBOX = str(Path(__file__).parents[1] / "peers" / "toolbox.py")
PYTHON = json.dumps(sys.executable)
VSCODE = """{
  // what a person enters
  "inputs": [{"type": "promptString", "id": "mode", "description": "How it echoes"}],
  "core": {"port": 0},
  "servers": {
    "My Tools": {"type": "stdio", "command": PYTHON, "args": [TOOLBOX], "env": {"MODE": "${input:mode}"}, "dev": {}},
  },
}""".replace("PYTHON", PYTHON).replace("TOOLBOX", json.dumps(TOOLBOX))
CODEX = f"""model = "some"
[core]
port = 0
[mcp_servers.tools]
command = {PYTHON}
args = [{json.dumps(TOOLBOX)}]
tool_timeout_sec = 30
disabled_tools = ["nothing"]
"""


@pytest.mark.parametrize("kind", ["VS Code", "Codex"])
def test_a_file_of_a_client_is_served(kind: str, tmp_path: Path) -> None:
    if kind == "VS Code":
        path = tmp_path / ".vscode" / "mcp.json"
        arguments = ["--input", "mode=plain"]
    else:
        path = tmp_path / "config.toml"
        arguments = [str(path)]
    path.parent.mkdir(exist_ok=True)
    path.write_text(VSCODE if kind == "VS Code" else CODEX)
    with Run("serve", *arguments, cwd=tmp_path) as served:
        if kind == "VS Code":
            served.wait_line(r"\.vscode/mcp\.json is taken", "stderr")
        assert Session(served.wait_url()).call("echo", text="hi") == "toolbox says hi"


def test_check_says_whose_file_it_is_before_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(VSCODE)
    with Run("check", str(path)) as checked:
        assert checked.wait_exit() == 2
        assert checked.stdout == f"{path}: taken for a file of VS Code"
        assert "the input mode (How it echoes) has no value, expected a value, as --input mode=VALUE" in checked.stderr


def test_a_file_is_converted_and_loads(tmp_path: Path) -> None:
    path, target = tmp_path / "mcp.json", tmp_path / "isthmus.yaml"
    path.write_text(VSCODE)
    with Run("convert", str(path), "--output", str(target)) as converted:
        assert converted.wait_exit() == 0
    document = yaml.safe_load(target.read_text())
    assert document["core"] == {"port": 0}
    [server] = document["servers"]
    assert (server["id"], server["upstream"]["env"]) == ("My-Tools", {"MODE": "${MODE}"})
    assert target.stat().st_mode & 0o077 == 0
    with Run("convert", str(path), "--output", str(target)) as again:
        assert again.wait_exit() == 2
        assert "is there already" in again.stderr
    with Run("check", cwd=tmp_path, env={"MODE": "plain"}) as checked:
        assert checked.wait_exit() == 0
        assert checked.stdout.startswith("isthmus.yaml: valid, 1 server")
