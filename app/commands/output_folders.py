"""Finds servers that write into a folder of their own choice, which is not one of their session's."""

from __future__ import annotations

import re
from typing import Final

from ..config.settings import Server

VARIABLES: Final = {
    "ffmpeg-mcp-lite": ("FFMPEG_OUTPUT_DIR",),
    "mcp-docgen": ("MCP_DOCGEN_OUTPUT_DIR",),
    "mcp-image": ("IMAGE_OUTPUT_DIR",),
    "mcp-imgutils": ("BFL_IMAGE_SAVE_DIR", "OPENAI_IMAGE_SAVE_DIR"),
    "workspace-mcp": ("WORKSPACE_ATTACHMENT_DIR",),
}
"""Environment variables with the output folder of released servers, by the names of their programs."""

_NAME: Final = re.compile(r"(?:^|_)(?:OUTPUT|SAVE|EXPORT|DOWNLOADS?)_?(?:DIR|DIRECTORY|FOLDER|PATH)$")
_SESSION_FOLDER: Final = re.compile(r"\{(?:ws|out|in|tmp)\}")


def output_folder_hints(server: Server) -> list[str]:
    """Returns a line for each environment variable that should name the session's output folder, and does not."""
    command, env = server.upstream.command or (), server.upstream.env
    programs = {re.split(r"[@=]", word.rpartition("/")[2])[0] for word in command}
    wanted = [name for program in sorted(programs) for name in VARIABLES.get(program, ()) if name not in env]
    lines = [
        f"auto: files that it writes without being told where stay behind: set its variable {name} to {{out}}"
        for name in wanted
    ]
    for name, value in env.items():
        if _NAME.search(name) and not _SESSION_FOLDER.search(value) and not _is_root(server, value):
            lines.append(
                f"auto: {name} names no folder of the session, so files written there stay behind: set it to {{out}}"
            )
    return lines


def _is_root(server: Server, folder: str) -> bool:
    return any(folder == root or folder.startswith(root.rstrip("/") + "/") for root in server.artifact_roots)
