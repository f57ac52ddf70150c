"""A tool call that carries files, while it is under way."""

from __future__ import annotations

from typing import NamedTuple

from ...base.plan import ArtifactProducer, AutoFiles, LocatorMode, OutputLocator, UploadConsumer
from ...state.exchange import Exchange
from ...state.link import Link
from ..store.store import StoredArtifact, StoredEntry
from .arguments import Reference
from .mentions import Mention
from .workspace_files import KnownFiles


class OutputRule(NamedTuple):
    """The treatment of the output of a call, as its adapter says or as `files: auto` does.

    Attributes:
        rules: where output is looked for; `AutoFiles`: wherever it can be found.
        is_exposed: collected files are listed among the resources.
        moves: a collected file is removed from where the tool wrote it.
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
        """The modes that output is looked for in; None: all that there are."""
        return self.rules.modes if isinstance(self.rules, OutputLocator) else None


class FileInput:
    """A stored file that a call is given.

    Attributes:
        path: where the server sees it; None until it was placed.
        data: its content; None until it was read.
    """

    __slots__ = ("data", "entry", "path")

    def __init__(self, entry: StoredEntry) -> None:
        self.entry = entry
        self.path: str | None = None
        self.data: bytes | None = None


class FileCall:
    """A call, the files it is given, and what is known of the files it may write.

    Attributes:
        references: the handles in the arguments that its adapters name.
        mentions: the handles anywhere else, with `files: auto`.
        inputs: the files that these stand for, by kind, session and id.
        is_placed: the params are as the server is to have them.
        original_params: the params as they were before.
        rule: the treatment of its output; None: its output is left alone.
        aid: the artifact id that its output path was allocated for.
        allocated: that path; None if there is none.
        open_orders: number of storage orders it waits for.
        problem: why it cannot go on, once something failed.
        known_files: the known files of its session.
        baseline: stamps that files outside of the session's folders had before the call, by path.
        begun_at: when it was sent to the server, on the engine's clock.
        begun_after: number of the newest known file then.
        problems: why files that it should have written were not collected.
        artifacts: the artifacts made of those that were.
        contents: the content of some artifacts, by their ids.
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
        "known_files",
        "link",
        "mentions",
        "open_orders",
        "original_params",
        "problem",
        "problems",
        "references",
        "rule",
        "tool",
    )

    def __init__(self, link: Link, exchange: Exchange, tool: str, known_files: KnownFiles) -> None:
        self.link = link
        self.exchange = exchange
        self.tool = tool
        self.known_files = known_files
        self.consumers: list[UploadConsumer] = []
        self.references: list[Reference] = []
        self.mentions: list[Mention] = []
        self.inputs: dict[tuple[str, str, str], FileInput] = {}
        self.is_placed = False
        self.original_params: bytes | None = None
        self.rule: OutputRule | None = None
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


def rule_of(producer: ArtifactProducer) -> OutputRule:
    """Returns the rule that an adapter sets."""
    return OutputRule(
        rules=producer.output_locator,
        is_exposed=producer.expose_as_resource,
        output_path_argument=producer.output_path_argument,
        allow_raw_output=producer.allow_raw_output,
        required=producer.required,
        moves=producer.move,
        rewrite_text=producer.rewrite_text,
        inline_text_bytes=producer.inline_text_bytes,
    )
