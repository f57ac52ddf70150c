"""Tests of the server of the demo: every call a visitor may make ends in a result, never in the server's death."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SERVER = [sys.executable, "-m", "isthmus.app.commands.demo_server"]


def call(name: str, arguments: object) -> dict[str, Any]:
    """The result of one call. The server must outlive it and answer the next message as well."""
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    text = "".join(json.dumps(message) + "\n" for message in messages)
    done = subprocess.run(SERVER, input=text, capture_output=True, text=True, check=True, timeout=60)
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert [tool["name"] for tool in second["result"]["tools"]] == ["count_words", "write_report"]
    result: dict[str, Any] = first["result"]
    return result


@pytest.mark.parametrize(
    "name, arguments, complaint",
    [
        ("count_words", {"path": "/no/such/file"}, "cannot open /no/such/file: No such file or directory"),
        ("count_words", {"path": "/"}, "cannot open /: Is a directory"),
        ("count_words", {}, "got no argument 'path', expected a path"),
        ("write_report", {"path": __file__}, "got no argument 'output', expected a path"),
        ("count_words", {"path": None}, "got other arguments than this tool takes, expected paths as text"),
        ("count_words", None, "got other arguments than this tool takes, expected paths as text"),
        ("count_words", {"path": sys.executable}, "got a file that is not UTF-8 text, expected text"),
        ("surf", {"path": __file__}, "there is no tool surf, expected count_words or write_report"),
    ],
)
def test_the_demo_tools_explain_invalid_arguments(name: str, arguments: object, complaint: str) -> None:
    assert call(name, arguments) == {"content": [{"type": "text", "text": complaint}], "isError": True}


def test_a_report_about_nothing(tmp_path: Path) -> None:
    empty, output = tmp_path / "empty.txt", tmp_path / "report.md"
    empty.write_text("")
    result = call("write_report", {"path": str(empty), "output": str(output)})
    assert result == {"content": [{"type": "text", "text": f"report written to {output}"}]}
    assert output.read_text() == "# Report\n\nempty.txt has 0 words, the longest is ''.\n"
