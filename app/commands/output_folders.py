"""Finds servers that write into a folder of their own choice, which is not one of their session's."""

from __future__ import annotations

import re
from typing import Final

from ..config.settings import Server

VARIABLES: Final = {
    "@mcp-z/mcp-pdf": {"RESOURCE_STORE_URI": "file://{out}"},
    "ffmpeg-mcp-lite": {"FFMPEG_OUTPUT_DIR": "{out}"},
    "mcp-docgen": {"MCP_DOCGEN_OUTPUT_DIR": "{out}"},
    "mcp-image": {"IMAGE_OUTPUT_DIR": "{out}"},
    "mcp-imgutils": {"BFL_IMAGE_SAVE_DIR": "{out}", "OPENAI_IMAGE_SAVE_DIR": "{out}"},
    "workspace-mcp": {"WORKSPACE_ATTACHMENT_DIR": "{out}"},
}
"""Environment variables with the output folder of released servers, by the names of their programs, and what they
should be."""

_NAME: Final = re.compile(r"(?:^|_)(?:OUTPUT|SAVE|EXPORT|DOWNLOADS?)_?(?:DIR|DIRECTORY|FOLDER|PATH)$")
_SESSION_FOLDER: Final = re.compile(r"\{(?:ws|out|in|tmp)\}")


def output_folder_hints(server: Server) -> list[str]:
    """Returns a line for each environment variable that should name the session's output folder, and does not."""
    command, env = server.upstream.command or (), server.upstream.env
    lines = [
        f"auto: files that it writes without being told where stay behind: set its variable {name} to {folder}"
        for program, variables in VARIABLES.items()
        for name, folder in variables.items()
        if name not in env and any(_is_program(word, program) for word in command)
    ]
    for name, value in env.items():
        if _NAME.search(name) and not _SESSION_FOLDER.search(value) and not _is_root(server, value):
            lines.append(
                f"auto: {name} names no folder of the session, so files written there stay behind: set it to {{out}}"
            )
    return lines


def _is_program(word: str, name: str) -> bool:
    """True if a word of a command is the program, with or without its path and version."""
    without_version = re.split(r"==|(?<=.)@", word)[0]
    return f"/{without_version}".endswith(f"/{name}")


def _is_root(server: Server, folder: str) -> bool:
    return any(folder == root or folder.startswith(root.rstrip("/") + "/") for root in server.artifact_roots)
