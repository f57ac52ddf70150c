"""Tests of the hints to servers that write into a folder of their own choice."""

from __future__ import annotations

from typing import Any

import pytest
from isthmus.app.commands.output_folders import output_folder_hints
from isthmus.app.config.settings import Server, Upstream


def hints(*command: str, env: dict[str, str], **more: Any) -> list[str]:
    """Returns the variables that the hints for a server name."""
    server = Server(id="s", upstream=Upstream(command=command, env=env), **more)
    return [name for line in output_folder_hints(server) for name in line.split() if name.isupper()]


@pytest.mark.parametrize(
    ("command", "env", "expected"),
    [
        ("uvx ffmpeg-mcp-lite@0.2.2", {}, ["FFMPEG_OUTPUT_DIR"]),
        ("/venv/bin/ffmpeg-mcp-lite", {}, ["FFMPEG_OUTPUT_DIR"]),
        ("npx -y @scope/mcp-image", {}, ["IMAGE_OUTPUT_DIR"]),
        ("npx @mcp-z/mcp-pdf@1.0.0", {}, ["RESOURCE_STORE_URI"]),
        ("uvx mcp-pdf", {}, []),
        ("uvx ffmpeg-mcp-lite", {"FFMPEG_OUTPUT_DIR": "{out}"}, []),
        ("uvx ffmpeg-mcp-lite", {"FFMPEG_OUTPUT_DIR": "/home/me"}, ["FFMPEG_OUTPUT_DIR"]),
        ("uvx ffmpeg-mcp-lite", {"FFMPEG_OUTPUT_DIR": "/srv/out/x"}, []),
        ("other", {"REPORT_SAVE_FOLDER": "/home/me", "OUTPUT_DIR": "{ws}/x", "PATH": "/bin"}, ["REPORT_SAVE_FOLDER"]),
    ],
)
def test_a_variable_that_names_no_folder_of_the_session_is_told(
    command: str, env: dict[str, str], expected: list[str]
) -> None:
    assert hints(*command.split(), env=env, artifact_roots=("/srv/out",)) == expected


def test_a_server_elsewhere_has_no_variables() -> None:
    assert output_folder_hints(Server(id="s", upstream=Upstream(url="http://127.0.0.1:1/mcp"))) == []
