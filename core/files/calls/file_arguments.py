"""The arguments of a tool that name files, as far as its entry in `tools/list` says so.

The last word of a name is what the argument is: `pdf_path` and `inputFile` name files, `file_format` and
`document_handle` do not. A description counts with its first sentence, and stands in the schema or, as in servers that
are generated from functions, in the tool's description. Paths to folders, on the web and within repositories are none.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from ...base.lazy_regex import Pattern
from ...jsonrpc.append import readable_members, readable_text
from ...jsonrpc.splice import take
from .file_words import RELATIVE_TO, STEM_ONLY, alternatives
from .tool_hints import TEXT_MAX_CHARS, argument_schemas, decoded_object

ABOUT_MAX_CHARS: Final = 160
"""Characters of an argument's description that are read. What it is stands at the beginning."""

NAME_MAX_CHARS: Final = 200
"""Characters of a tool's name that are read. The specification recommends at most 128."""

_OTHER: Final = Pattern(
    r"ids?|keys?|handles?|formats?|types?|ext|extensions?|patterns?|glob|filter|hash|checksum|size|count|contents?"
    r"|texts?|base64|data|encoding|mode|dirs?|directory|directories|folders?|prefix|suffix|query|command|code|script"
    r"|style|token|prompt|message|title|description|selector|cwd|root|project|repo|repository|language|sheet|range"
    r"|fields?|columns?|status|labels?|tags?|options"
)
"""Last words of names that are no files, whatever the description speaks of."""

_PATH: Final = Pattern(alternatives("path"))
_FOLDER: Final = Pattern(alternatives("folder"))
_FILE: Final = Pattern(alternatives("file", is_loose=True))
_WRITE: Final = Pattern(alternatives("write"))
_READ: Final = Pattern(alternatives("read"))

_PATH_NAME: Final = Pattern(rf"(?:{alternatives('path')}|\bfiles?)\Z")
_ONLY_NAME: Final = Pattern(r"file ?name")
_ANY_FILE: Final = Pattern(r"(?:(?:full|absolute) )?(?:file ?)?(?:path|name)|file")
_FILE_NAME: Final = Pattern(rf"{alternatives('file')}(?: sources?)?\Z")
_FILE_FIRST: Final = Pattern(
    rf"\W*+(?:(?!u?id\b|url\b)(?:\w{{1,3}}|more|optional|local|list|names?|{alternatives('read')}|{alternatives('write')})\W++){{0,5}}"
    rf"(?:{alternatives('file', prefix='[^ ]{0,12}')}\W*+){{1,4}}(?:\Z|(?<=[^\w\s'])|{alternatives('after')})"
)
"""A noun phrase at the beginning whose last noun is a file: `The PDF file to read`, not `Document title`."""

_FOLDER_PHRASE: Final = Pattern(rf"(?:{alternatives('write')}\W?)?{alternatives('folder')}")
_OR_FILE: Final = Pattern(rf"\bor\b.*(?:{alternatives('path')}|{alternatives('file')})")

_NOT_BY_NOUN: Final = frozenset(("names", "url", "urls"))
"""Last words of names for which a description has to speak of a path: it may be on the web, too."""

_CONTENT: Final = Pattern(r"\bbase64\b")
_URL: Final = Pattern(r"\burls?\b")
_REMOTE: Final = Pattern(r"\A(?:name|.*\b(?:remote|cloud|bucket)\b.*)\Z")
_REPOSITORY: Final = Pattern(r"\bgit repository\b", re.IGNORECASE)
_BESIDE_OTHER_PATHS: Final = ({"owner", "repo"}, {"repo_path"}, {"method", "path"})
"""Arguments of tools whose paths are those of a repository or of a web service."""

_LISTS: Final = Pattern(
    r"\b(?:director(?:y|ies)|folders?|dirs?|tree)\b|\b(?:list|search|find|scan|delete|remove)\b.*\bfiles?\b|\bsearch\Z"
)
_MOVES: Final = Pattern(r"\b(?:move|copy|rename)\b.*\bfiles?\b")
_MAKES: Final = Pattern(
    rf"\b(?:create|write|new|save|generate|export|download|make)\b(?: \w+)? "
    rf"(?:{alternatives('file')}|text|binary|content)\Z"
)
"""Names of tools: of those that take a folder or read no file, of those that move files, of those that make one."""

_ENDS: Final = {"source": False, "src": False, "from": False, "destination": True, "dest": True, "dst": True}
"""Names of arguments of a tool that moves files: whether the file is made."""

_BORDER: Final = Pattern(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_\-.]+")
_SENTENCE_END: Final = Pattern(r"[.;!?](?=\s)|[。；！？\n]")
_OPTIONAL: Final = Pattern(r"\W*(?:optional|required|可选|必需|必填)\W*", re.IGNORECASE)
_DOCUMENTED: Final = Pattern(
    r"(?<![\w.])([A-Za-z_]\w{0,63})[`*'\"]{0,3}[ \t]{0,8}(?:\(([^()\n]{0,80})\))?(?:\([^()\n]{0,80}\))?[ \t]{0,4}"
    r"(?:(?:[:：=]|[-–—][ \t])[ \t]{0,4}(?=([^\n|]{0,240})))?"
)
"""Explanations of arguments in a tool's description: `path: The file`, `path (the file)`, `path - the file`."""

_NOT_TEXT: Final = frozenset(("boolean", "number", "integer"))


class FileArguments(NamedTuple):
    """The arguments of a tool that name files, by their labels without indices, in the order of the schema.

    Attributes:
        reads: those that name files that the tool reads or changes.
        writes: those that name files that it makes.
    """

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


def file_arguments(tool: bytes) -> FileArguments:
    """Returns the arguments that name files, for the entry of a tool in `tools/list`."""
    spans = readable_members(tool)
    abouts = _texts(decoded_object(take(tool, spans.get("inputSchema"))))
    if not abouts or _is_elsewhere(abouts):
        return FileArguments()
    name = _spaced((readable_text(take(tool, spans.get("name"))) or "")[:NAME_MAX_CHARS])
    description = (readable_text(take(tool, spans.get("description"))) or "")[:TEXT_MAX_CHARS]
    documented = {} if all(abouts.values()) else _documented(description)
    reads: list[str] = []
    writes: list[str] = []
    for label, text in abouts.items():
        key = label.rpartition(".")[2]
        words = _spaced(key)
        if _OTHER.fullmatch(words.rpartition(" ")[2]) or _REMOTE.search(words):
            continue
        about = _first_sentence(text or documented.get(key, ""))
        if _names_file(words, about, name):
            (writes if _is_made(words, about, name) else reads).append(label)
    if len(reads) > 1:  # beside a path, `filename` is what the file is to be called
        reads = [label for label in reads if not _ONLY_NAME.fullmatch(_spaced(label.rpartition(".")[2]))] or reads
    return FileArguments(tuple(reads), tuple(writes))


def _names_file(key: str, about: str, tool: str) -> bool:
    """True if an argument names a file. The name decides where nothing is said of it."""
    is_path = _PATH_NAME.search(key) is not None
    last = key.rpartition(" ")[2]
    if not about:
        if is_path:
            return not _FOLDER.search(key) and not _LISTS.search(tool)
        is_end = key in _ENDS and _MOVES.search(tool) is not None
        return is_end or last in ("uri", "uris") or _FILE_NAME.search(key) is not None
    if STEM_ONLY.search(about) or _is_folder(about) or (_LISTS.search(tool) and not _FILE.search(about)):
        return False
    if _PATH.search(about):
        return True
    if _CONTENT.search(about):
        return False
    return is_path or (last not in _NOT_BY_NOUN and not _URL.search(about) and _FILE_FIRST.match(about) is not None)


def _is_made(key: str, about: str, tool: str) -> bool:
    """True if the file that an argument names is to be made. What stands first in a description decides."""
    if not about and key in _ENDS:
        return _ENDS[key]
    if _READ.search(key):
        return False
    if _WRITE.search(key):
        return True
    about = _FOLDER_PHRASE.sub(" ", about)
    read, write = _READ.search(about), _WRITE.search(about)
    if write is not None:
        return read is None or write.start() < read.start()
    return read is None and _ANY_FILE.fullmatch(key) is not None and _MAKES.search(tool) is not None


def _is_folder(about: str) -> bool:
    """True if a description speaks of a folder before it speaks of a file, and of no file instead."""
    about = _FOLDER_PHRASE.sub("\0", about)
    folder = about.find("\0")
    if folder < 0 or _OR_FILE.search(about, folder):
        return False
    file = _FILE.search(about)
    return file is None or file.start() > folder


def _is_elsewhere(abouts: dict[str, str]) -> bool:
    """True if the paths of a tool are those of a repository or of a web service."""
    if any(abouts.keys() >= others for others in _BESIDE_OTHER_PATHS):
        return True
    return any(_REPOSITORY.search(about[:ABOUT_MAX_CHARS]) for about in abouts.values())


def _texts(schema: dict[str, Any]) -> dict[str, str]:
    """Returns the description of each argument that is a text or a list of texts, by label."""
    abouts: dict[str, str] = {}
    texts = set()
    for label, part in argument_schemas(schema):
        about = part.get("description")
        abouts[label] = abouts.get(label) or (about if isinstance(about, str) else "")
        if _holds_text(part):
            texts.add(label)
    return {label: about for label, about in reversed(abouts.items()) if label in texts}


def _holds_text(part: dict[str, Any]) -> bool:
    """True if a schema takes any text, or a list of which nothing is said."""
    if "enum" in part or "const" in part:
        return False
    types = part.get("type")
    if types is None:
        return not any(word in part for word in ("items", "properties", "anyOf", "oneOf", "allOf", "$ref"))
    names = types if isinstance(types, list) else [types]
    if any(name in names for name in _NOT_TEXT):
        return False  # a flag or a number that may come as a text
    return "string" in names or ("array" in names and not part.get("items"))


def _documented(description: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in _DOCUMENTED.finditer(description):
        name, aside, rest = match.groups()
        if aside or rest:
            found.setdefault(name, f"{aside or ''} {rest or ''}".strip())
    return found


def _first_sentence(description: str) -> str:
    """Returns what is read of a description. `Optional.` is no sentence."""
    description = description[:ABOUT_MAX_CHARS]
    optional = _OPTIONAL.match(description)
    end = _SENTENCE_END.search(description, optional.end() if optional else 0)
    return RELATIVE_TO.sub("", _spaced(description[: end.start()] if end else description))


def _spaced(text: str) -> str:
    """Returns a text in lower case, with names in it cut into their words."""
    return _BORDER.sub(" ", text).lower()
