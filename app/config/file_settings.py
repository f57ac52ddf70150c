"""The shape of the keys about a server's files: adapters, `files: auto` and shared folders."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from ...core.base.plan import Deliver, Links, LocatorMode
from ..base.sizes import KIB
from .value_types import InlineSize, Texts, about

NAMES: Final = "Names of tools, or patterns with *, ? and [...]."
LINKS: Final = (
    "How results lead to an artifact: a resource_link block, a text with its URI or download link, or both. text is "
    "for clients that turn a result with a resource_link into an error, as those of AutoGen and Semantic Kernel do."
)


class UploadConsumerAdapter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="upload_consumer"):
    """Tools that take uploaded files: a handle in the argument becomes what the server can read."""

    tools: Annotated[Texts, Meta(min_length=1, description=NAMES)]
    file_path_argument: Annotated[
        str | Texts,
        about(
            "Dotted path of the argument, [*] for the items of a list on the way, or a list of such paths; the value "
            "is one handle or a list of handles."
        ),
    ]
    uri_scheme: Annotated[str, about("What handles start with. upload:// and artifact:// are taken as well.")] = (
        "upload://"
    )
    deliver: Annotated[
        Deliver | None,
        about(
            "What the tool gets in place of a handle: path of a copy, file_uri the same as file:///, url a signed "
            "link for a server that does not see this disk, or the content itself as data_uri, base64 or text (UTF-8 "
            "only). null: path."
        ),
    ] = None
    uri_prefix: Annotated[bool | None, about("true is deliver: file_uri, false is deliver: path.")] = None
    accept_other: Annotated[
        bool, about("Hand on what is no handle, such as a URL or a path of the server's, as it is; else refuse it.")
    ] = False

    @property
    def arguments(self) -> Texts:
        """`file_path_argument` as a tuple, also if it is one path."""
        given = self.file_path_argument
        return (given,) if isinstance(given, str) else given

    @property
    def delivery(self) -> Deliver:
        if self.deliver is None:
            return Deliver.FILE_URI if self.uri_prefix else Deliver.PATH
        return self.deliver


class OutputLocator(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The place in a tool's result that says what was written."""

    mode: Annotated[
        LocatorMode | tuple[LocatorMode, ...],
        about("Where to look, one or a list: what any of them finds is taken in, each file once."),
    ] = LocatorMode.NONE
    output_path_key: Annotated[
        str | None, about("structured: dotted path into the structured result, [*] for the items of a list.")
    ] = None
    output_path_regexes: Annotated[
        Texts,
        about(
            "regex: regular expressions (RE2), searched for in the result's text; the path is group `path`, else group "
            "1, else all of it. None: the built-in patterns for paths, links and file:// URIs."
        ),
    ] = ()
    path_arguments: Annotated[
        Texts, about("argument: dotted paths of the arguments that name the file. None: any argument of one text.")
    ] = ()

    @property
    def modes(self) -> tuple[LocatorMode, ...]:
        return (self.mode,) if isinstance(self.mode, LocatorMode) else self.mode


class ArtifactProducerAdapter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="artifact_producer"):
    """Tools whose output files are taken in and handed out as artifacts."""

    tools: Annotated[Texts, Meta(min_length=1, description=f"{NAMES} Of those that name a tool, the first holds.")]
    output_path_argument: Annotated[str | None, about("The argument that tells the tool where to write.")] = None
    output_locator: OutputLocator = OutputLocator()
    persist: Annotated[bool, about("Take the file in; false leaves results alone.")] = True
    expose_as_resource: Annotated[bool, about("List the artifact among the session's resources.")] = True
    allow_raw_output: Annotated[bool, about("Put the file's content into the result as well.")] = False
    required: Annotated[bool, about("A result without its file is an error.")] = False
    move: Annotated[bool, about("Remove the server's own file once it is taken in.")] = False
    rewrite_text: Annotated[
        bool, about("In the result, write an artifact's URI where the path of its file stands.")
    ] = False
    inline_text_bytes: Annotated[
        InlineSize, about("Add text files of at most so many bytes to the result as a block; 0: none, at most 1Mi.")
    ] = 0
    links: Annotated[Links, about(LINKS)] = Links.BOTH


Adapter = UploadConsumerAdapter | ArtifactProducerAdapter


class Files(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files of the tools that no adapter names."""

    mode: Annotated[Literal["auto", "none"], about("auto: carry them; none: leave these tools alone.")] = "auto"
    rewrite_text: Annotated[bool, about("In results, write an artifact's URI where the path of its file stands.")] = (
        True
    )
    inline_text_bytes: Annotated[
        InlineSize, about("Add text files of at most so many bytes to results as blocks; 0: none, at most 1Mi.")
    ] = 32 * KIB
    expose_as_resource: Annotated[bool, about("List the artifacts among the session's resources.")] = True
    links: Annotated[Links, about(LINKS)] = Links.BOTH


class SharedFolder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A folder that the server sees under another path, such as a volume of its container."""

    here: Annotated[str, about("Its path on this machine.")]
    there: Annotated[str, about("Its absolute path as the server sees it.")]
