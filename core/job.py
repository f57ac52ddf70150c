"""One tool call that carries files, while it is under way."""

from __future__ import annotations

from .exchange import Exchange
from .links import Link
from .plan import ArtifactProducer, UploadConsumer
from .shelf import StoredArtifact, Upload


class Job:
    """Attributes:
    open_orders: storage orders it waits for.
    problem: why it cannot go on, once something failed.
    """

    __slots__ = (
        "aid",
        "allocated",
        "artifacts",
        "consumers",
        "exchange",
        "is_over",
        "link",
        "open_orders",
        "pinned",
        "problem",
        "producer",
        "raw",
        "tool",
    )

    def __init__(self, link: Link, exchange: Exchange, tool: str) -> None:
        self.link = link
        self.exchange = exchange
        self.tool = tool
        self.consumers: list[UploadConsumer] = []
        self.producer: ArtifactProducer | None = None
        self.pinned: dict[str, Upload] = {}
        self.aid = ""
        self.allocated: str | None = None
        self.open_orders = 0
        self.problem: str | None = None
        self.is_over = False
        self.artifacts: list[StoredArtifact] = []
        self.raw: dict[str, bytes] = {}
