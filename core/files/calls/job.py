"""A tool call that carries files, while it is under way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ...base.plan import ArtifactProducer, AutoFiles, Links, LocatorMode, OutputLocator, UploadConsumer
from ...base.storage import SeenFile
from ...state.exchange import Exchange
from ...state.link import Link
from ..store.store import StoredArtifact, StoredEntry
from .arguments import Reference
from .inline_content import InlineFile
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
    links: Links = Links.BOTH

    @property
    def modes(self) -> tuple[LocatorMode, ...] | None:
        """The modes that output is looked for in; None: all that there are."""
        return self.rules.modes if isinstance(self.rules, OutputLocator) else None


NEW_FILES: Final = OutputRule(OutputLocator(mode=(LocatorMode.ARGUMENT,)), is_exposed=True, rewrite_text=True)
"""Treatment of the output of a call that only the `artifact://new/` URIs in its arguments speak of."""


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

    def receive_placed(self, path: str) -> None:
        """Takes the path where the server sees it."""
        self.path = path

    def receive_data(self, data: bytes) -> None:
        """Takes its content."""
        self.data = data


class FileCall:
    """A call, the files it is given, and what is known of the files it may write.

    Attributes:
        references: the handles in the arguments that its adapters name.
        mentions: the handles anywhere else, with `files: auto`.
        inline: the content that some of these are, with their labels, by kind, session and id.
        inputs: the files that these stand for, by kind, session and id.
        is_placed: the params are as the server is to have them.
        original_params: the params as they were before.
        rule: the treatment of its output; None: its output is left alone.
        aid: the artifact id that its output path was allocated for.
        allocated: that path; None if there is none.
        new_files: the paths of the files that the tool is to write, by their URIs; "" until their folders are made.
        output_uri: the one of these in its output argument.
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
        "inline",
        "inputs",
        "is_over",
        "is_placed",
        "known_files",
        "link",
        "mentions",
        "new_files",
        "open_orders",
        "original_params",
        "output_uri",
        "problem",
        "problems",
        "references",
        "rule",
        "tool",
    )

    def __init__(
        self,
        link: Link,
        exchange: Exchange,
        tool: str,
        known_files: KnownFiles,
        *,
        consumers: Sequence[UploadConsumer],
        rule: OutputRule | None,
    ) -> None:
        self.link = link
        self.exchange = exchange
        self.tool = tool
        self.known_files = known_files
        self.consumers = consumers
        self.references: list[Reference] = []
        self.mentions: list[Mention] = []
        self.inline: dict[tuple[str, str, str], tuple[str, InlineFile]] = {}
        self.inputs: dict[tuple[str, str, str], FileInput] = {}
        self.is_placed = False
        self.original_params: bytes | None = None
        self.rule = rule
        self.aid = ""
        self.allocated: str | None = None
        self.new_files: dict[str, str] = {}
        self.output_uri: str | None = None
        self.baseline: dict[str, str] = {}
        self.begun_at = 0.0
        self.begun_after = 0
        self.open_orders = 0
        self.problem: str | None = None
        self.problems: list[str] = []
        self.is_over = False
        self.artifacts: list[StoredArtifact] = []
        self.contents: dict[str, bytes] = {}

    # --- Orders -----------------------------------------------------------------------------------------------------

    @property
    def is_harmless(self) -> bool:
        """True if the tool says of itself that a call may be repeated."""
        known = (self.link.tools.hints or {}).get(self.tool)
        return known is not None and known.is_harmless

    @property
    def is_read_only(self) -> bool:
        """True if the tool says of itself that it changes nothing."""
        known = (self.link.tools.hints or {}).get(self.tool)
        return known is not None and known.is_read_only

    def expect_answer(self) -> None:
        """Waits for the answer of one more storage order."""
        self.open_orders += 1

    def receive_answer(self) -> bool:
        """Handles such an answer. True if it goes on now: it waits for no more, and is not over."""
        self.open_orders -= 1
        return not self.open_orders and not self.is_over

    def collect_new_files(self) -> None:
        """Has new files collected, where no adapter says what becomes of the tool's output."""
        if self.new_files and self.rule is None:
            self.rule = NEW_FILES

    def fail(self, problem: str) -> None:
        """Records why it cannot go on."""
        self.problem = problem

    # --- Before it is sent ------------------------------------------------------------------------------------------

    def receive_found(self, references: list[Reference], found: list[Mention]) -> None:
        """Takes the handles in its arguments."""
        self.references, self.mentions = references, found

    def add_inline(self, found: Reference | Mention, file: InlineFile) -> None:
        """Adds a file whose content is one of them. It becomes an input once it is stored."""
        self.inline[found.kind, found.sid, found.id] = found.label, file

    def add_input(self, key: tuple[str, str, str], entry: StoredEntry) -> None:
        """Adds a file that one of them stands for."""
        self.inputs[key] = FileInput(entry)

    def name_artifact(self, aid: str) -> None:
        """Takes the id of the artifact that its output path is allocated for."""
        self.aid = aid

    def receive_allocated(self, path: str) -> None:
        """Takes that path."""
        self.allocated = path

    def add_new_file(self, uri: str) -> None:
        """Adds a file that the tool is to write, under the URI that the client has for it."""
        self.new_files[uri] = ""

    def name_output(self, uri: str) -> None:
        """Takes the URI of a new file in its output argument."""
        self.output_uri = uri
        self.add_new_file(uri)

    def receive_new_file(self, uri: str, path: str) -> None:
        """Takes the path of such a file."""
        self.new_files[uri] = path

    @property
    def output_path(self) -> str | None:
        """The path for its output argument; None if it has none."""
        return self.allocated if self.output_uri is None else self.new_files[self.output_uri]

    def receive_baseline(self, files: Sequence[SeenFile]) -> None:
        """Takes the stamps of files that are there before it is sent."""
        self.baseline.update({file.path: file.stamp for file in files})

    def begin(self, now: float) -> None:
        """Begins the call: what its tool writes is written from now on."""
        self.begun_at, self.begun_after = now, self.known_files.last_number

    def place(self, params: bytes) -> None:
        """Replaces the params by those for the server."""
        self.is_placed, self.original_params = True, self.exchange.params
        self.exchange.replace_params(params)

    def undo_place(self) -> None:
        """Goes back to the client's params: they are written anew."""
        self.is_placed = False
        self.exchange.replace_params(self.original_params)

    # --- After it ---------------------------------------------------------------------------------------------------

    def report(self, *problems: str) -> None:
        """Adds reasons why files were not collected."""
        self.problems += problems

    def add_artifact(self, record: StoredArtifact) -> bool:
        """Adds an artifact. False if it has it."""
        if record in self.artifacts:
            return False
        self.artifacts.append(record)
        return True

    def remove_artifact(self, record: StoredArtifact) -> None:
        """Removes an artifact that was not stored, or is another call's as well."""
        self.artifacts.remove(record)

    def keep_content(self, record: StoredArtifact, data: bytes) -> None:
        """Keeps the content of an artifact, which its result shows."""
        self.contents[record.aid] = data

    def end(self) -> None:
        """Ends the call, however."""
        self.is_over = True


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
        links=producer.links,
    )
