"""Answers what a server asks of the person at the terminal: forms field by field, and pages to open."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import msgspec

from ..base.output import laid_out, plain
from .schemas import Argument, Json, arguments_of, choices_of, items_of, text_of
from .values import Misfit, value_of

LINE_MAX_BYTES: Final = 64 * 1024
"""Bytes of a line that are read: terminals pass on shorter ones."""

Ask = Callable[[str], Awaitable[str | None]]
"""Shows a prompt and returns the line that is entered; None at the end of input."""

ACCEPT_EMPTY: Final = b'{"action":"accept","content":{}}'
DECLINE: Final = b'{"action":"decline"}'


def has_terminal() -> bool:
    """True if a person can be asked."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()


async def ask_on_terminal(prompt: str) -> str | None:
    """Shows a prompt on stderr, and reads a line of the terminal, without a thread that could not be ended."""
    sys.stderr.write(laid_out(prompt))
    sys.stderr.flush()
    await anyio.wait_readable(sys.stdin)
    line = os.read(sys.stdin.fileno(), LINE_MAX_BYTES)
    if not line:
        sys.stderr.write("\n")
        return None
    return line.decode(errors="replace").rstrip("\n")


async def answer_elicitation(server: str, params: Json, ask: Ask, say: Callable[[str], None]) -> bytes:
    """Returns the result of an `elicitation/create`: what the person enters. The end of input declines."""
    say(f"{server} asks: {plain(str(params.get('message', '')))}")
    if params.get("mode") == "url":
        say(f"  {plain(str(params.get('url', '')))}")
        opened = await ask("  open this page yourself, then press Enter; Ctrl-D declines: ")
        return DECLINE if opened is None else b'{"action":"accept"}'
    fields = arguments_of(params.get("requestedSchema")).known
    if not fields:
        entered = await ask("  accept? Enter accepts; Ctrl-D declines: ")
        return DECLINE if entered is None else ACCEPT_EMPTY
    say("  Enter takes the default; Ctrl-D declines.")
    content: Json = {}
    for field in fields.values():
        is_answered = False
        while not is_answered:
            entered = await ask(prompt_of(field))
            if entered is None:
                return DECLINE
            try:
                content |= read_field(field, entered)
                is_answered = True
            except Misfit as misfit:
                say(f"  {plain(str(misfit))}")
    return msgspec.json.encode({"action": "accept", "content": content})


def prompt_of(field: Argument) -> str:
    """Returns the prompt of a field, with what it means on a line before it."""
    title = next(
        (one["title"] for one in field.schemas if isinstance(one.get("title"), str) and "const" not in one), ""
    )
    about = " ".join(f"{title + ': ' if title and field.about else title}{field.about}".split())
    default = field.default
    shown = ", ".join(map(text_of, default)) if isinstance(default, list) else text_of(default)
    end = "" if default is None else f" [{plain(shown)}]"
    needed = ", required" if field.is_required and default is None else ""
    lines = f"  {plain(about)}\n" if about else ""
    return f"{lines}  {plain(field.name)} ({plain(field.label)}{needed}){end}: "


def read_field(field: Argument, entered: str) -> Json:
    """Returns the member that a line means; none if an optional field is left empty.

    Raises:
        Misfit: it is no value of the field.
    """
    if not entered:
        if field.default is not None:
            return {field.name: field.default}
        if not field.is_required:
            return {}
        if not field.has("string") or any(choices_of(one) for one in field.schemas):
            raise Misfit(f"got nothing, expected {field.label}")
    if field.has("array") and not entered.startswith("["):
        items = items_of(next(one for one in field.schemas if one.get("type") == "array"))
        return {field.name: [value_of(part.strip(), items) for part in entered.split(",") if part.strip()]}
    return {field.name: value_of(entered, field.schemas)}
