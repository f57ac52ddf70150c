"""Which of the two drivers moves the bytes: streams of anyio, on every event loop, or protocols, on asyncio's."""

from __future__ import annotations

import asyncio


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
