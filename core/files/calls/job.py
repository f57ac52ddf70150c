"""One tool call that carries files, while it is under way."""

from __future__ import annotations

from typing import NamedTuple

from ...base.plan import ArtifactProducer, AutoFiles, LocatorMode, OutputLocator, UploadConsumer
from ...state.exchange import Exchange
from ...state.link import Link
from ..store.store import Shelved, StoredArtifact
from .arguments import Reference
from .mentions import Mention
from .workspace_files import Ledger


class Way(NamedTuple):
    """How the output of a call is dealt with: as its adapter says, or as `files: auto` does.

    Attributes:
        rules: where it is looked for; `AutoFiles`: wherever it can be found.
        is_exposed: whether what is taken in is listed among the resources.
    """

    rules: OutputLocator | AutoFiles
    is_exposed: bool
    output_path_argument: str | None = None
    allow_raw_output: bool = False
    required: bool = False
    moves: bool = False
    rewrite_text: bool = False
    inline_text_bytes: int = 0

    @property
    def modes(self) -> tuple[LocatorMode, ...] | None:
        """None: all that there are."""
        return self.rules.modes if isinstance(self.rules, OutputLocator) else None


class Input:
    """A stored file that a call is given.

    Attributes:
        path: where the server sees it, once it was laid there.
        data: its content, once it was read.
    """

    __slots__ = ("data", "entry", "path")

    def __init__(self, entry: Shelved) -> None:
        self.entry = entry
        self.path: str | None = None
        self.data: bytes | None = None


class Job:
    """Attributes:
    references: the handles where its adapters say there are some.
    mentions: the handles anywhere else, with `files: auto`.
    inputs: the files they stand for, by kind, session and id.
    is_placed: its arguments are as the server is to have them.
    said: as they were before.
    way: what is done about its output; None: nothing.
    open_orders: storage orders it waits for.
    problem: why it cannot go on, once something failed.
    ledger: what is known of the files of its session.
    baseline: stamps that files outside of the session's folders had before the call, by path.
    begun_at: when it went up, on our clock.
    begun_after: which entry of the ledger was the newest then.
    problems: why files that it should have written were not taken in.
    artifacts: those that were.
    contents: the content of some, by their ids.
    """

    __slots__ = (
        "aid",
        "allocated",
        "artifacts",
        "baseline",
        "begun_after",
        "begun_at",
        "consumers",
        "contents",
        "exchange",
        "inputs",
        "is_over",
        "is_placed",
        "ledger",
        "link",
        "mentions",
        "open_orders",
        "problem",
        "problems",
        "references",
        "said",
        "tool",
        "way",
    )

    def __init__(self, link: Link, exchange: Exchange, tool: str, ledger: Ledger) -> None:
        self.link = link
        self.exchange = exchange
        self.tool = tool
        self.ledger = ledger
        self.consumers: list[UploadConsumer] = []
        self.references: list[Reference] = []
        self.mentions: list[Mention] = []
        self.inputs: dict[tuple[str, str, str], Input] = {}
        self.is_placed = False
        self.said: bytes | None = None
        self.way: Way | None = None
        self.aid = ""
        self.allocated: str | None = None
        self.baseline: dict[str, str] = {}
        self.begun_at = 0.0
        self.begun_after = 0
        self.open_orders = 0
        self.problem: str | None = None
        self.problems: list[str] = []
        self.is_over = False
        self.artifacts: list[StoredArtifact] = []
        self.contents: dict[str, bytes] = {}


def way_of(producer: ArtifactProducer) -> Way:
    return Way(
        rules=producer.output_locator,
        is_exposed=producer.expose_as_resource,
        output_path_argument=producer.output_path_argument,
        allow_raw_output=producer.allow_raw_output,
        required=producer.required,
        moves=producer.move,
        rewrite_text=producer.rewrite_text,
        inline_text_bytes=producer.inline_text_bytes,
    )
