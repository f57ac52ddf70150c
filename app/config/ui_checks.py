"""Checks of `ui`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from ...core.wire.http.origin import is_loopback
from ..base.problem import Problem
from .settings import Settings

_LISTEN: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
_EXAMPLE: Final = "HOST:PORT, such as 127.0.0.1:8933"


def check_ui(settings: Settings, is_sound: Callable[[str], bool]) -> Iterator[Problem]:
    """Checks `ui`, and who may use the live page."""
    ui = settings.ui
    if not is_sound("ui") or ui.listen is None:
        return
    found = _LISTEN.fullmatch(ui.listen)
    if found is None or int(found["port"]) > 65_535:
        yield Problem("ui.listen", _EXAMPLE)
        return
    if any(not name.strip() for name in ui.redact):
        yield Problem("ui.redact", "names, such as iban", "one is empty")
    has_token = False
    if is_sound("core"):
        management = settings.core.management
        has_token = management is not None and management.token is not None
        if int(found["port"]) == settings.core.port != 0:
            yield Problem("ui.listen", "another port than core.port, which clients use")
    if not is_loopback(found["host"]) and not has_token and not (is_sound("auth") and settings.auth.recognises):
        right = "an address of this machine, such as 127.0.0.1:8933, or auth or core.management.token beside it"
        yield Problem("ui.listen", right, "other machines can reach it, and nothing says who may")
