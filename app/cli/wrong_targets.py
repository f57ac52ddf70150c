"""Explains what is given to `isthmus wrap` and is neither a URL nor a command, and names what was probably meant."""

from __future__ import annotations

import re
import shutil
from typing import Final

from ..config.documents import without_credentials

_ADDRESS: Final = re.compile(
    r"(localhost|\[[0-9A-Fa-f:.]+\]|[\w-]+(\.[\w-]+)+|[\w-]+(?=:[0-9]))(:[0-9]{1,5}(?=[/?#]|\Z)|(?=/))([/?#].*)?",
    re.DOTALL,
)
"""A host with a port or a path, as in a URL without its scheme."""


def how_to_wrap(program: str, *, has_more: bool) -> str:
    if not re.fullmatch(r"[\w@.~/][\w@.~/+-]*", program):  # the value of an option may have been taken for a target
        program = "COMMAND"
    return f"to wrap a command, write -- before it: isthmus wrap -- {program}{' …' if has_more else ''}"


def explain_target(text: str) -> str:
    """Returns what is wrong with a target that is no URL. What follows its first word is not repeated: it may hold a
    secret."""
    if _ADDRESS.fullmatch(text):
        url = f"http://{without_credentials(text)}"
        return f"got no URL: http:// is missing; write isthmus wrap {url}, or, for a command, isthmus wrap -- COMMAND"
    words = text.split()
    if len(words) > 1 and not text.startswith("-"):
        return f"got no URL; {how_to_wrap(words[0], has_more=True)}, without the quotes, which make it one word"
    return f"got no URL; {how_to_wrap(text, has_more=False)}"


def explain_command(command: list[str]) -> str:
    """Returns what is wrong with a command whose words are one; empty if it is none."""
    words = command[0].split()
    if len(command) > 1 or len(words) < 2 or shutil.which(command[0]) is not None:
        return ""
    return f"got a command in quotes, which make it one word; write isthmus wrap -- {words[0]} …, without the quotes"
