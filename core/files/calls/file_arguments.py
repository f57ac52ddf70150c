"""Which arguments of a tool name files, as far as its entry in `tools/list` says so.

An argument names a file if its name ends in such a word (`input_file`, `pdfPath`) or its description has one. The last
word of a name is what the argument is: a `file_format` is no file. A path to a folder, to something on the web, or
within a repository is none either.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ...base.lazy_regex import Pattern
from ...jsonrpc.append import readable_members, readable_text
from ...jsonrpc.splice import take
from .file_words import alternatives
from .tool_hints import TEXT_MAX_CHARS, argument_schemas, decoded_object

ABOUT_MAX_CHARS: Final = 240
"""Characters of an argument's description that are read. What it is stands at the beginning."""

_CAMEL: Final = Pattern(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_\-.]+")
_SENTENCE_END: Final = Pattern(r"[.;!?](?=\s)|[。；！？\n]")

_OTHER: Final = frozenset(
    "id ids key keys handle handles format formats type types ext extension extensions pattern patterns glob filter hash "
    "checksum size count content contents text texts base64 data encoding mode dir dirs directory directories folder "
    "folders prefix suffix query command code script style token prompt message title description selector cwd root "
    "project repo repository language sheet range field fields column columns status label labels tag tags options".split()
)
"""Last words of names that are no files, whatever the description speaks of."""

_NOT_TEXT: Final = frozenset(("boolean", "number", "integer"))
_NOT_BY_NOUN: Final = frozenset(("name", "names", "url", "urls"))
_BESIDE_OTHER_PATHS: Final = ({"owner", "repo"}, {"repo_path"}, {"method", "path"})
"""Arguments of tools whose paths are no paths of files."""

_ENDS: Final = {"source": False, "src": False, "from": False, "destination": True, "dest": True, "dst": True, "to": True}
"""Names in a tool that moves files: whether the file is written."""

_PATH: Final = Pattern(alternatives("path"))
_FOLDER: Final = Pattern(alternatives("folder"))
_FILE: Final = Pattern(alternatives("file", is_loose=True))
_FILE_FIRST: Final = Pattern(
    rf"\W*(?:(?:\w{{1,3}}|optional|local|list|names?|{alternatives('read')}|{alternatives('write')})\W+){{0,5}}"
    rf"(?:{alternatives('file', prefix='[^ ]{0,12}')}\W*)+(?:\Z|(?<=[^\w\s'])|{alternatives('after')})"
)
"""A noun phrase at the beginning whose last noun is a file: `The PDF file to read`, not `Document title`."""
_WRITE: Final = Pattern(alternatives("write"))
_READ: Final = Pattern(alternatives("read"))
_FILE_NAME: Final = Pattern(rf"(?:{alternatives('path')}|{alternatives('file')})(?: sources?)?\Z")
_PATH_NAME: Final = Pattern(rf"(?:{alternatives('path')}|\bfiles?)\Z")
_FOLDER_OR_FILE: Final = Pattern(rf"\bor\b.*(?:{alternatives('path')}|{alternatives('file')})")
_ASIDE: Final = Pattern(r"\brelative to\b[^,.;)]*|相对于[^，。]*")
_FOLDER_PHRASE: Final = Pattern(rf"(?:{alternatives('write')}\W?)?{alternatives('folder')}")

_URL: Final = Pattern(r"\burls?\b")
_REMOTE: Final = Pattern(r"\b(?:remote|cloud|bucket)\b")
_LISTS: Final = Pattern(
    r"\b(?:director(?:y|ies)|folders?|dirs?|tree)\b|\b(?:list|search|find|scan|delete|remove)\b.*\bfiles?\b|\bsearch\Z"
)
_MOVES: Final = Pattern(r"\b(?:move|copy|rename)\b.*\bfiles?\b")
_MAKES: Final = Pattern(
    rf"\b(?:create|write|new|save|generate|export|make)\b(?: \w+)? (?:{alternatives('file')}|text|binary|content)\Z"
)
_STEM: Final = Pattern(r"without (?:the |file |its )?(?:extension|suffix)|不含扩展名")
_REPOSITORY: Final = Pattern(r"\bgit repository\b")
_DOCUMENTED: Final = Pattern(
    r"(?<![\w.])([A-Za-z_]\w{0,63})[`*'\"]{0,3}[ \t]{0,8}(?:\(([^()\n]{0,80})\))?[ \t]{0,4}"
    r"(?:(?:[:：=]|[-–—][ \t])[ \t]{0,4}(?=([^\n|]{0,240})))?"
)


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
    if not abouts:
        return FileArguments()
    name = _spaced(readable_text(take(tool, spans.get("name"))) or "")
    documented = _documented((readable_text(take(tool, spans.get("description"))) or "")[:TEXT_MAX_CHARS])
    if _is_elsewhere(abouts):
        return FileArguments()
    reads, writes = [], []
    for label, about in abouts.items():
        key = label.rpartition(".")[2]
        does_write = _does_write(_spaced(key), _about(about or documented.get(key, "")), name)
        if does_write is not None:
            (writes if does_write else reads).append(label)
    return FileArguments(tuple(reads), tuple(writes))


def _does_write(key: str, about: str, tool: str) -> bool | None:
    """Returns whether an argument names a file to be written, or to be read; None if it names none."""
    last = key.rpartition(" ")[2]
    if last in _OTHER or _REMOTE.search(key) or _STEM.search(about):
        return None
    is_path = _PATH_NAME.search(key) is not None
    if about:
        is_list = _LISTS.search(tool) is not None and _FILE.search(about) is None
        names_file = not is_list and not _is_folder(about) and (is_path or _says_file(about, last))
    elif _MOVES.search(tool) and key in _ENDS:
        return _ENDS[key]
    elif is_path:
        names_file = not _FOLDER.search(key) and not _LISTS.search(tool)
    else:
        names_file = _FILE_NAME.search(key) is not None or last in ("uri", "uris")
    if not names_file or _READ.search(key):
        return False if names_file else None
    if _WRITE.search(key):
        return True
    said = _FOLDER_PHRASE.sub(" ", about)
    read, write = _READ.search(said), _WRITE.search(said)
    if read is None and write is None:
        return is_path and _MAKES.search(tool) is not None
    return read is None or (write is not None and write.start() < read.start())


def _about(description: str) -> str:
    """Returns what is read of a description: its beginning, without what a path is relative to."""
    first = _SENTENCE_END.search(description, 24)
    return _ASIDE.sub("", _spaced(description[: min(first.start() if first else ABOUT_MAX_CHARS, ABOUT_MAX_CHARS)]))


def _says_file(about: str, last: str) -> bool:
    """True if a description speaks of a file. What is a name or a URL of a file may be one of something else's."""
    if _PATH.search(about):
        return True
    return last not in _NOT_BY_NOUN and not _URL.search(about) and _FILE_FIRST.match(about) is not None


def _is_folder(about: str) -> bool:
    """True if a text speaks of a folder before it speaks of a file."""
    about = _FOLDER_PHRASE.sub("\0", about)
    folder = about.find("\0")
    if folder < 0 or _FOLDER_OR_FILE.search(about, folder):
        return False
    file = _FILE.search(about)
    return file is None or file.start() > folder


def _is_elsewhere(abouts: dict[str, str]) -> bool:
    """True if the paths of a tool are those of a repository or of a web service."""
    if any(abouts.keys() >= others for others in _BESIDE_OTHER_PATHS):
        return True
    return any(_REPOSITORY.search(about.lower()) for about in abouts.values())


def _texts(schema: dict[str, Any]) -> dict[str, str]:
    """Returns the description of each argument that is a text or a list of texts, by label."""
    abouts: dict[str, str] = {}
    texts = set()
    for label, part in argument_schemas(schema):
        about = part.get("description")
        if isinstance(about, str) and not abouts.get(label):
            abouts[label] = about
        abouts.setdefault(label, "")
        if _holds_text(part):
            texts.add(label)
    return {label: abouts[label] for label in reversed(abouts) if label in texts}


def _holds_text(part: dict[str, Any]) -> bool:
    if "enum" in part or "const" in part:
        return False
    types = part.get("type")
    types = [kind for kind in types if isinstance(kind, str)] if isinstance(types, list) else [types]
    if not _NOT_TEXT.isdisjoint(types):
        return False  # a flag or a number that may also come as a text
    if "array" in types and not part.get("items"):
        return True
    return "string" in types or not any(
        part.get(word) for word in ("type", "items", "properties", "anyOf", "oneOf", "allOf", "$ref")
    )


def _documented(description: str) -> dict[str, str]:
    """Returns what a tool's description says of its arguments: `path: The file`, `path (the file)`, `path - the file`."""
    found: dict[str, str] = {}
    for match in _DOCUMENTED.finditer(description):
        name, aside, rest = match.groups()
        if aside or rest:
            found.setdefault(name, f"{aside or ''} {rest or ''}".strip())
    return found


def _spaced(name: str) -> str:
    """Returns a text in lower case, with names in it cut into their words."""
    return _CAMEL.sub(" ", name).lower()
