"""Tests of `isthmus connect-info` against a running isthmus, and against none."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from command import Run, run
from isthmus.app.cli.running_arguments import CLIENTS
from isthmus.app.commands.client_entries import TARGETS

TOOLBOX = [sys.executable, str(Path(__file__).parents[1] / "peers" / "toolbox.py")]


def served(folder: Path, ids: tuple[str, ...], **more: object) -> Run:
    servers = [{"id": id, "upstream": {"command": TOOLBOX}} for id in ids]
    path = folder / "isthmus.json"
    path.write_text(json.dumps({"core": {"port": 0}, "servers": servers, **more}))
    return Run("serve", "--quiet-start", str(path))


def test_all_servers_or_one_are_connected_to(tmp_path: Path) -> None:
    with served(tmp_path, ("notes", "files")) as running:
        line = running.wait_line("connect a client: isthmus (connect-info cursor --url (.*))")
        base_url = line[2]
        code, out, err = run(*line[1].split())
        assert (code, json.loads(out)) == (0, {"mcpServers": {"isthmus": {"url": f"{base_url}/mcp"}}})
        assert err == "Cursor: put this into ~/.cursor/mcp.json\n"
        _, out, _ = run("connect-info", "cursor", "files", "--url", base_url)
        assert json.loads(out) == {"mcpServers": {"files": {"url": f"{base_url}/mcp/files"}}}
        code, out, err = run("connect-info", "cursor", "fils", "--url", base_url)
        assert (code, out) == (1, "")
        assert err.endswith("has nothing at /mcp/fils, expected one of notes, files; did you mean files?")
        code, out, err = run("connect-info", "claude-code", "--url", base_url)
        assert f"or: claude mcp add --transport http isthmus {base_url}/mcp" in err
        assert "note: Claude Code asks at its next start" in err


def test_the_only_server_has_its_own_name_and_no_token_is_printed(tmp_path: Path) -> None:
    token = {"name": "ci", "sha256": hashlib.sha256(b"a-secret-token").hexdigest(), "groups": ["admin"]}
    with served(tmp_path, ("notes",), auth={"tokens": [token]}) as running:
        base_url = running.wait_line("connect a client: isthmus connect-info cursor --url (.*)")[1]
        code, out, err = run("connect-info", "gemini", "--url", base_url, "--token", "a-secret-token")
        assert (code, "a-secret-token" in out + err) == (0, False)
        headers = {"Authorization": "Bearer TOKEN"}
        assert json.loads(out) == {"mcpServers": {"notes": {"httpUrl": f"{base_url}/mcp", "headers": headers}}}
        assert "replace TOKEN with your token" in err


def test_the_help_names_all_clients() -> None:
    assert tuple(TARGETS) == CLIENTS
    code, out, _ = run("connect-info", "--help")
    assert (code, [name for name in CLIENTS if f" {name}" not in out]) == (0, [])


def test_what_nobody_answers_and_who_is_not_known_is_said() -> None:
    code, out, err = run("connect-info", "codex", "notes", "--url", "http://127.0.0.1:9")
    assert (code, out) == (0, '[mcp_servers.notes]\nurl = "http://127.0.0.1:9/mcp/notes"')
    assert err.startswith("nothing listens at http://127.0.0.1:9")
    code, out, err = run("connect-info", "cursr")
    assert (code, out) == (2, "")
    assert err.startswith("isthmus: got the client 'cursr', expected one of claude-desktop, ")
    assert err.endswith("; did you mean cursor?")
    assert run("connect-info", "json", "--url", "unix:/run/x")[0] == 2
