"""Which of the two drivers moves the bytes: streams of anyio, on every event loop, or protocols, on asyncio's."""

from __future__ import annotations

import asyncio
from typing import NamedTuple


class Drive(NamedTuple):
    """How bytes are moved and framed.

    Attributes:
        protocols: whether protocols move them; None: wherever there are such.
        only_h11: h11 frames all of HTTP, and not only what is out of the ordinary.
    """

    protocols: bool | None = None
    only_h11: bool = False


DRIVE = Drive()


def uses_protocols(choice: bool | None = None) -> bool:
    """Whether what is made here and now takes protocols: as chosen, or else wherever there are such.

    They cost a fraction of what streams cost, but exist only on asyncio and what is like it. Neither driver owns a
    rule.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # trio
        return False
    return choice is not False
