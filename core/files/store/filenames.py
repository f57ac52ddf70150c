"""File names that are safe to show and to store, and media types determined from name and content.

A name is a label that people gave a file; it never decides where the file lies. It is made safe anyway, because
upstreams see it as the last component of a path.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from ...base.lazy_regex import Pattern

HEAD_BYTES: Final = 512
"""Bytes at the beginning of a file that are enough to tell its media type."""
NAME_MAX_BYTES: Final = 255
"""The longest path component that common file systems accept. At it: the name is cut, and its suffix kept."""

SUFFIX_MAX_BYTES: Final = 32
"""The longest suffix, with its dot, that is kept when a name is cut. No real suffix is longer."""

_UNSAFE: Final = Pattern(
    "[\x00-\x1f\x7f-\x9f"  # control characters
    "/\\\\:"  # separators of paths, drives and NTFS streams
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional controls: they make exe.txt out of txt.exe
    "\u2028\u2029\ufeff"  # line and paragraph ends, byte order mark
    "\ud800-\udfff]"  # halves of surrogate pairs: they have no UTF-8
)
_DEVICES: Final = frozenset(("CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$")) | {
    f"{port}{digit}" for port in ("COM", "LPT") for digit in "0123456789¹²³"
}
_MEDIA_TYPE: Final = Pattern(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")

# Types that senders declare when they do not know the real one.
_UNSPECIFIC: Final = frozenset(
    ("application/octet-stream", "binary/octet-stream", "application/x-binary", "application/force-download",
     "application/x-download", "application/unknown")
)  # fmt: skip

# Unambiguous signatures: offset, bytes, type.
_MAGIC: Final = (
    (0, b"%PDF-", "application/pdf"),
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBPVP8", "image/webp"),
    (8, b"WAVEfmt ", "audio/wav"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftypheic", "image/heic"),
    (0, b"II*\x00", "image/tiff"),
    (0, b"MM\x00*", "image/tiff"),
    (0, b"fLaC", "audio/flac"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (0, b"\xfd7zXZ\x00", "application/x-xz"),
    (0, b"\x00asm", "application/wasm"),
)

# Containers of many formats: believed only when neither sender nor suffix knows better (a .docx is a ZIP archive).
_CONTAINERS: Final = (
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"\x1f\x8b", "application/gzip"),
    (0, b"OggS", "application/ogg"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1a\x45\xdf\xa3", "video/x-matroska"),
)

# Suffix to type. The first suffix of a type is the one that `with_suffix` adds.
_TYPES: Final[dict[str, str]] = {
    "txt": "text/plain", "text": "text/plain", "log": "text/plain", "ini": "text/plain", "conf": "text/plain",
    "md": "text/markdown", "markdown": "text/markdown", "rst": "text/x-rst",
    "html": "text/html", "htm": "text/html", "css": "text/css", "csv": "text/csv", "tsv": "text/tab-separated-values",
    "js": "text/javascript", "mjs": "text/javascript", "ts": "text/x-typescript", "py": "text/x-python",
    "java": "text/x-java", "c": "text/x-c", "h": "text/x-c", "go": "text/x-go", "rs": "text/x-rust",
    "sh": "application/x-sh", "sql": "application/sql", "ics": "text/calendar", "vcf": "text/vcard",
    "diff": "text/x-diff", "patch": "text/x-diff", "tex": "text/x-tex",
    "json": "application/json", "jsonl": "application/jsonl", "ndjson": "application/x-ndjson",
    "geojson": "application/geo+json", "har": "application/json", "ipynb": "application/x-ipynb+json",
    "xml": "application/xml", "yaml": "application/yaml", "yml": "application/yaml", "toml": "application/toml",
    "pdf": "application/pdf", "ps": "application/postscript", "rtf": "application/rtf",
    "epub": "application/epub+zip", "doc": "application/msword", "xls": "application/vnd.ms-excel",
    "ppt": "application/vnd.ms-powerpoint",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "odt": "application/vnd.oasis.opendocument.text", "ods": "application/vnd.oasis.opendocument.spreadsheet",
    "odp": "application/vnd.oasis.opendocument.presentation",
    "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp",
    "svg": "image/svg+xml", "avif": "image/avif", "heic": "image/heic", "tiff": "image/tiff", "tif": "image/tiff",
    "bmp": "image/bmp", "ico": "image/vnd.microsoft.icon",
    "mp3": "audio/mpeg", "wav": "audio/wav", "flac": "audio/flac", "ogg": "audio/ogg", "opus": "audio/ogg",
    "m4a": "audio/mp4", "aac": "audio/aac",
    "mp4": "video/mp4", "webm": "video/webm", "mov": "video/quicktime", "mkv": "video/x-matroska",
    "avi": "video/x-msvideo",
    "zip": "application/zip", "gz": "application/gzip", "tgz": "application/gzip", "tar": "application/x-tar",
    "bz2": "application/x-bzip2", "xz": "application/x-xz", "7z": "application/x-7z-compressed",
    "zst": "application/zstd", "wasm": "application/wasm", "sqlite": "application/vnd.sqlite3",
    "parquet": "application/vnd.apache.parquet", "ttf": "font/ttf", "woff2": "font/woff2",
}  # fmt: skip

_OTHER_SPELLINGS: Final = {
    "image/jpg": "jpg", "audio/mp3": "mp3", "audio/x-wav": "wav", "audio/wave": "wav", "audio/webm": "webm",
    "application/x-yaml": "yaml", "text/yaml": "yaml", "text/xml": "xml", "application/javascript": "js",
    "image/x-icon": "ico", "application/x-gzip": "gz", "application/octet-stream": "bin",
}  # fmt: skip

_SUFFIXES: Final[dict[str, str]] = _OTHER_SPELLINGS | {mime: suffix for suffix, mime in reversed(_TYPES.items())}

_TEXT_TYPES: Final = frozenset(
    f"application/{name}"
    for name in ("json", "jsonl", "x-ndjson", "json5", "xml", "yaml", "x-yaml", "toml", "javascript", "x-javascript",
                 "ecmascript", "typescript", "sql", "graphql", "x-sh", "x-tex")
)  # fmt: skip


def safe_filename(name: str, fallback: str) -> str:
    """Returns the last path component of `name` as a display name.

    Unicode is kept, normalised to NFC; dangerous characters become `_`. The result is never empty, ".", "..", hidden,
    or a Windows device name, and has at most `NAME_MAX_BYTES` of UTF-8, cut at a character border with the suffix kept.
    Any str is accepted, and a safe name is returned unchanged. If nothing is left of `name`, `fallback` is made safe
    and used instead.
    """
    return _safe(name) or _safe(fallback) or "file"


def mime_type_of(filename: str, head: bytes, declared: str | None) -> str:
    """Returns the media type, without parameters, of content that begins with `head` (512 bytes are enough).

    The evidence, strongest first: an unambiguous signature in the bytes, the type that the sender declared unless it is
    unspecific, the suffix of the name, the signature of a container format, and whether the bytes are text.
    """
    found = _by_signature(_MAGIC, head)
    if found is not None:
        return found
    essence = _essence(declared or "")
    if _MEDIA_TYPE.fullmatch(essence) and essence not in _UNSPECIFIC:
        return essence
    known = _TYPES.get(filename.rpartition(".")[2].lower()) if "." in filename else None
    return (
        known
        or _by_signature(_CONTAINERS, head)
        or ("text/plain" if _reads_as_text(head) else "application/octet-stream")
    )


def is_text(mime: str) -> bool:
    """True if content of this type is text to people and models."""
    essence = _essence(mime)
    return essence.startswith("text/") or essence in _TEXT_TYPES or essence.endswith(("+json", "+xml", "+yaml"))


def suffix_of(mime: str) -> str | None:
    """Returns the usual suffix of a media type, without its dot; None if the type is not in the table."""
    return _SUFFIXES.get(_essence(mime))


def with_suffix(filename: str, mime: str) -> str:
    """Returns a safe `filename` with the usual suffix of `mime` added if it has none; unknown types add none."""
    suffix = suffix_of(mime)
    if "." in filename.strip(".") or suffix is None:
        return filename
    return _cut(filename, NAME_MAX_BYTES - len(suffix) - 1) + "." + suffix


def _safe(name: str) -> str:
    last = re.split(r"[/\\]", name)[-1]
    clean = _UNSAFE.sub("_", unicodedata.normalize("NFC", last)).strip(" .")
    if clean.partition(".")[0].rstrip(" ").upper() in _DEVICES:
        clean = "_" + clean
    if len(clean.encode()) <= NAME_MAX_BYTES:
        return clean
    stem, dot, suffix = clean.rpartition(".")
    ending = dot + suffix
    if stem and len(ending.encode()) <= SUFFIX_MAX_BYTES:
        return _cut(stem, NAME_MAX_BYTES - len(ending.encode())) + ending
    return _cut(clean, NAME_MAX_BYTES).rstrip(" .")


def _cut(text: str, size_max_bytes: int) -> str:
    return text.encode()[:size_max_bytes].decode(errors="ignore")


def _essence(mime: str) -> str:
    """`Text/HTML; charset=utf-8` → `text/html`."""
    return mime.partition(";")[0].strip().lower()


def _by_signature(table: tuple[tuple[int, bytes, str], ...], head: bytes) -> str | None:
    return next((mime for offset, magic, mime in table if head.startswith(magic, offset)), None)


def _reads_as_text(head: bytes) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":  # the head may end inside a character
            return False
    return b"\0" not in head
