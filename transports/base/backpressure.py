"""Reading from a client only as fast as what it sends is wanted."""

from __future__ import annotations

from anyio.abc import ByteStream


def read_when_asked(stream: ByteStream) -> None:
    """To be called when a connection was accepted, before anything is received.

    anyio's stream on asyncio reads ahead from the moment it is accepted, and stops once a `receive` has found nothing
    there. A client that sends faster than it is read keeps that from happening, and all that it sends would be held in
    memory, gigabytes of an upload too. A connection that anyio opened is at rest from the beginning, as is every one on
    trio; there is nothing to be done for these, and no public way for that one.
    """
    pause = getattr(getattr(stream, "_transport", None), "pause_reading", None)
    if pause is not None:
        pause()
