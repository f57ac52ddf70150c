"""The choice between two drivers for sockets and pipes: anyio streams, on every event loop, or asyncio protocols."""

from __future__ import annotations

import asyncio
from typing import NamedTuple


class Drive(NamedTuple):
    """The choice of driver, and of the HTTP codec.

    Attributes:
        protocols: True for asyncio protocols, False for streams; None: protocols wherever the event loop has them.
        only_h11: h11 reads and writes all of HTTP, instead of only unusual messages.
    """

    protocols: bool | None = None
    only_h11: bool = False


DRIVE = Drive()


def uses_protocols(choice: bool | None = None) -> bool:
    """True if asyncio protocols are to be used: `choice` allows it and an asyncio event loop runs.

    Protocols cost a fraction of what streams cost, but exist only on asyncio and compatible loops such as uvloop.
    Neither driver contains a rule of the protocol.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # trio
        return False
    return choice is not False
