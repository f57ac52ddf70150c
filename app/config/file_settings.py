"""The shape of the keys about a server's files: adapters, `files: auto` and shared folders."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from ...core.base.plan import Deliver, Links, LocatorMode
from ..base.sizes import KIB
from .value_types import InlineSize, Texts, about

NAMES: Final = "Names of tools, or patterns with *, ? and [...]."
LINKS: Final = (
    "How results refer to an artifact: a resource_link block, a text with its URI and download link, or both. Use text "
    "for clients that reject resource_link, such as AutoGen and Semantic Kernel."
)


class UploadConsumerAdapter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="upload_consumer"):
    """Tools that take uploaded files. A handle in the argument is replaced with a path or the content."""

    tools: Annotated[Texts, Meta(min_length=1, description=NAMES)]
    file_path_argument: Annotated[
        str | Texts,
        about(
            "Dotted path of the argument, or a list of paths. [*] stands for the items of a list. The value is one "
            "handle or a list of handles."
        ),
    ]
    uri_scheme: Annotated[str, about("Beginning of handles. upload:// and artifact:// are always accepted.")] = (
        "upload://"
    )
    deliver: Annotated[
        Deliver | None,
        about(
            "Replacement of a handle. path: path of a copy. file_uri: that path as file:///. url: signed link, for a "
            "server on another machine. data_uri, base64 or text (UTF-8 only): the content. null: path."
        ),
    ] = None
    uri_prefix: Annotated[bool | None, about("true: deliver: file_uri. false: deliver: path.")] = None
    accept_other: Annotated[
        bool,
        about("Pass values that are not handles, such as URLs or paths of the server, unchanged. false: reject them."),
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
    """The search for the written files."""

    mode: Annotated[
        LocatorMode | tuple[LocatorMode, ...],
        about("One mode or a list of modes. Each file that a mode finds becomes one artifact."),
    ] = LocatorMode.NONE
    output_path_key: Annotated[
        str | None, about("structured: dotted path in the structured result. [*] stands for the items of a list.")
    ] = None
    output_path_regexes: Annotated[
        Texts,
        about(
            "regex: regular expressions (RE2) for the result's text. The path is the group `path`, else group 1, else "
            "the whole match. Empty: built-in patterns for paths, links and file:// URIs."
        ),
    ] = ()
    path_arguments: Annotated[
        Texts, about("argument: dotted paths of the arguments that name the file. Empty: every string argument.")
    ] = ()

    @property
    def modes(self) -> tuple[LocatorMode, ...]:
        return (self.mode,) if isinstance(self.mode, LocatorMode) else self.mode


class ArtifactProducerAdapter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="artifact_producer"):
    """Tools whose output files are returned as artifacts."""

    tools: Annotated[
        Texts, Meta(min_length=1, description=f"{NAMES} If several adapters match a tool, the first applies.")
    ]
    output_path_argument: Annotated[str | None, about("Argument with the output path.")] = None
    output_locator: OutputLocator = OutputLocator()
    persist: Annotated[bool, about("Store the file as an artifact. false: results are not changed.")] = True
    expose_as_resource: Annotated[bool, about("List the artifact among the session's resources.")] = True
    allow_raw_output: Annotated[bool, about("Also add the file's content to the result.")] = False
    required: Annotated[bool, about("A result without its file is an error.")] = False
    move: Annotated[bool, about("Remove the server's file after it was copied.")] = False
    rewrite_text: Annotated[bool, about("Replace the path of an artifact's file in the result with its URI.")] = False
    inline_text_bytes: Annotated[
        InlineSize, about("Maximum size of text files whose content is added to the result. 0: none. At most 1Mi.")
    ] = 0
    links: Annotated[Links, about(LINKS)] = Links.BOTH


Adapter = UploadConsumerAdapter | ArtifactProducerAdapter


class Files(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files of the tools that no adapter names."""

    mode: Annotated[Literal["auto", "none"], about("auto: transfer files. none: do not transfer files.")] = "auto"
    rewrite_text: Annotated[bool, about("Replace the path of an artifact's file in results with its URI.")] = True
    inline_text_bytes: Annotated[
        InlineSize, about("Maximum size of text files whose content is added to the result. 0: none. At most 1Mi.")
    ] = 32 * KIB
    expose_as_resource: Annotated[bool, about("List the artifacts among the session's resources.")] = True
    links: Annotated[Links, about(LINKS)] = Links.BOTH


class SharedFolder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A folder that has another path at the server, such as a volume of a container."""

    here: Annotated[str, about("Path of the folder on this machine.")]
    there: Annotated[str, about("Absolute path of the folder at the server.")]
