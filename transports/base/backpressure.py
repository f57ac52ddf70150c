"""Flow control from the first byte: an accepted connection is read only as fast as its data is consumed."""

from __future__ import annotations

from anyio.abc import ByteStream


def pause_until_read(stream: ByteStream) -> None:
    """Pauses an accepted stream. Call it right after the accept, before anything is received.

    anyio's stream on asyncio reads ahead from the moment it is accepted, and stops once a `receive` found nothing
    there. A client that sends faster than it is read prevents that, and all it sends would be held in memory: for an
    upload, gigabytes. Streams that anyio opened, and every stream on trio, do not read ahead, so nothing is done for
    them. anyio offers no public way to pause an accepted stream, hence the private attribute.
    """
    pause = getattr(getattr(stream, "_transport", None), "pause_reading", None)
    if pause is not None:
        pause()
