"""The contract of a driver as tables: which orders come to which kind of channel, and which inputs it may call there.

`WatchedEngine` judges by these tables, and docs/engine.md explains them row by row.
"""

from __future__ import annotations

import enum
from typing import Final

from ..base.decisions import Decide
from ..base.effects import (
    Close,
    Delete,
    Dial,
    Effect,
    Emit,
    Forward,
    Join,
    Listen,
    Note,
    Pass,
    Pause,
    Post,
    Resume,
    Send,
    SendEvents,
    Spawn,
    Target,
)
from ..base.events import (
    DeleteOpening,
    DownloadOpening,
    DraftOpening,
    EventPipeOpening,
    GetOpening,
    MessageOpening,
    Opening,
    PipeOpening,
    PostOpening,
    UploadOpening,
)
from ..base.storage import Append, Cease, Receive, Serve, StorageOrder


class Kind(enum.Enum):
    """The kind of a channel."""

    CLIENT_PIPE = "client pipe"
    CLIENT_POST = "client POST"
    CLIENT_GET = "client GET"
    CLIENT_DELETE = "client DELETE"
    CLIENT_EVENT_PIPE = "client event pipe"
    UPLOAD = "upload"
    DOWNLOAD = "download"
    DIALLED_PIPE = "dialled pipe"
    DIALLED_REQUEST = "dialled request"


OPENINGS: Final[dict[type[Opening], Kind]] = {
    PipeOpening: Kind.CLIENT_PIPE,
    PostOpening: Kind.CLIENT_POST,
    MessageOpening: Kind.CLIENT_POST,
    GetOpening: Kind.CLIENT_GET,
    DeleteOpening: Kind.CLIENT_DELETE,
    EventPipeOpening: Kind.CLIENT_EVENT_PIPE,
    UploadOpening: Kind.UPLOAD,
    DraftOpening: Kind.UPLOAD,
    DownloadOpening: Kind.DOWNLOAD,
}
"""The kind of a client's channel, by its opening."""

TARGETS: Final[dict[type[Target], Kind]] = {
    Spawn: Kind.DIALLED_PIPE,
    Join: Kind.DIALLED_PIPE,
    Post: Kind.DIALLED_REQUEST,
    Listen: Kind.DIALLED_REQUEST,
    Delete: Kind.DIALLED_REQUEST,
}
"""The kind of a dialled channel, by the target of its `Dial`."""

_PACE: Final = frozenset({Pause, Resume})
"""Orders that may come to any channel: whatever it was that filled another one."""

ORDERS: Final[dict[Kind, frozenset[type[Effect]]]] = {
    Kind.CLIENT_PIPE: _PACE | {Send, Close},
    Kind.CLIENT_POST: _PACE | {Send, SendEvents, Pass, Close, Forward},
    Kind.CLIENT_GET: _PACE | {Send, SendEvents, Close, Forward},
    Kind.CLIENT_DELETE: _PACE | {Send, Close, Forward},
    Kind.CLIENT_EVENT_PIPE: _PACE | {Send, Close},
    Kind.UPLOAD: _PACE | {Send, Receive, Append, Cease, Forward},
    Kind.DOWNLOAD: _PACE | {Send, Serve},
    Kind.DIALLED_PIPE: _PACE | {Dial, Send, Close},
    Kind.DIALLED_REQUEST: _PACE | {Dial, Close},
}
"""The orders that come to a channel of each kind."""

INPUTS: Final[dict[Kind, frozenset[str]]] = {
    Kind.CLIENT_PIPE: frozenset({"receive_message", "receive_sent"}),
    Kind.CLIENT_POST: frozenset({"receive_message", "receive_sent"}),
    Kind.CLIENT_GET: frozenset({"receive_sent"}),
    Kind.CLIENT_DELETE: frozenset({"receive_sent"}),
    Kind.CLIENT_EVENT_PIPE: frozenset({"receive_sent"}),
    Kind.UPLOAD: frozenset({"receive_message", "receive_sent"}),
    Kind.DOWNLOAD: frozenset({"receive_sent"}),
    Kind.DIALLED_PIPE: frozenset({"receive_message", "receive_sent"}),
    Kind.DIALLED_REQUEST: frozenset({"receive_message"}),
}
"""The inputs between `receive_open` and `receive_close` on a channel of each kind."""

WITHOUT_CHANNEL: Final[frozenset[type[Effect]]] = frozenset({Decide, Note, Emit, *StorageOrder.__args__})
"""The orders that concern no channel."""


def sent_bytes(order: Effect) -> int:
    """Returns the bytes that `receive_sent` is to report for an order."""
    if isinstance(order, Send):
        return len(order.message)
    if isinstance(order, SendEvents):
        return sum(map(len, order.messages))
    return sum(map(len, order.pieces)) if isinstance(order, Pass) else 0
