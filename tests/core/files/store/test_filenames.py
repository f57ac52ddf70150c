"""Tests of filenames and types: any name is made safe, and a type follows from the bytes first, then from names."""

from __future__ import annotations

import unicodedata

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.files.store.filenames import (
    NAME_MAX_BYTES,
    is_text,
    mime_type_of,
    safe_filename,
    suffix_of,
    with_suffix,
)

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)  # lone surrogates included
NASTY = st.lists(
    st.sampled_from(
        ["/", "\\", ".", "..", " ", "\0", "\n", "\u202e", "\ud800", "con", "NUL", "COM1", "a", "é", "e\u0301",
         "😀", "文", ".png", ".tar.gz", "x" * 120, "ß" * 90, "-", "_", ":"]
    ),
    max_size=8,
).map("".join)  # fmt: skip
NAMES = st.one_of(ANY_TEXT, NASTY)


@given(name=NAMES, fallback=NAMES)
def test_every_name_becomes_a_safe_path_component(name: str, fallback: str) -> None:
    """The result is one visible, encodable component that no system gives a meaning of its own."""
    safe = safe_filename(name, fallback)
    assert safe
    assert len(safe.encode()) <= NAME_MAX_BYTES
    assert not set(safe) & set("/\\:\0\u202e")
    assert not any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in safe)
    assert not safe.startswith((".", " "))
    assert not safe.endswith((".", " "))
    assert safe.partition(".")[0].rstrip().lower() not in ("con", "nul", "com1")
    assert unicodedata.is_normalized("NFC", safe)


@given(name=NAMES, fallback=NAMES)
def test_a_safe_name_stays_as_it_is(name: str, fallback: str) -> None:
    """The function is idempotent, whatever the second fallback."""
    safe = safe_filename(name, fallback)
    assert safe_filename(safe, "other") == safe


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a b.txt", "a b.txt"),
        ("файл.pdf", "файл.pdf"),
        ("résumé.pdf", "résumé.pdf"),
        ("re\u0301sume\u0301.pdf", "résumé.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\плaн.docx", "плaн.docx"),
        (".bashrc", "bashrc"),
        ("....", "fallback.bin"),
        ("", "fallback.bin"),
        ("dir/", "fallback.bin"),
        ("CON", "_CON"),
        ("aux.txt", "_aux.txt"),
        ("lpt1 .log", "_lpt1 .log"),
        ("console.txt", "console.txt"),
        ("photo\u202egpj.exe", "photo_gpj.exe"),
        ("a\x00b\r\n.txt", "a_b__.txt"),
        ("name. . ", "name"),
        ("half\ud83d.txt", "half_.txt"),
    ],
)
def test_known_names(name: str, expected: str) -> None:
    assert safe_filename(name, "fallback.bin") == expected


@pytest.mark.parametrize("letter", ["x", "ß", "文", "😀"])
@pytest.mark.parametrize("suffix", [".png", ".tar.gz", ""])
def test_long_names_are_cut_between_characters_and_keep_their_suffix(letter: str, suffix: str) -> None:
    safe = safe_filename(letter * 300 + suffix, "f")
    assert NAME_MAX_BYTES - 4 < len(safe.encode()) <= NAME_MAX_BYTES
    last = "." + suffix.rpartition(".")[2] if suffix else ""
    assert safe.endswith(last)
    assert set(safe.removesuffix(suffix).removesuffix(last)) <= {letter, *".targz"}


def test_a_suffix_longer_than_any_real_one_is_cut_like_the_rest() -> None:
    assert safe_filename("a." + "b" * 400, "f") == "a." + "b" * 253


PNG = b"\x89PNG\r\n\x1a\n rest"


@pytest.mark.parametrize(
    ("filename", "head", "declared", "expected"),
    [
        ("x.txt", PNG, "text/html", "image/png"),  # bytes count most
        ("x.bin", b"%PDF-1.7", None, "application/pdf"),
        ("x.txt", b"hello", "text/csv", "text/csv"),
        ("x.csv", b"a,b", "application/octet-stream", "text/csv"),
        ("x.csv", b"a,b", "not a type", "text/csv"),
        ("x", b"{}", "Application/JSON; charset=utf-8", "application/json"),
        ("r.DOCX", b"PK\x03\x04...", None, "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("r", b"PK\x03\x04...", None, "application/zip"),
        ("README", b"hello", None, "text/plain"),
        ("README", b"", None, "text/plain"),
        ("README", "é".encode()[:1], None, "text/plain"),  # a head may end within a character
        ("README", b"\xff\xfe", None, "application/octet-stream"),
        ("README", b"a\0b", None, "application/octet-stream"),
        ("png", b"text", None, "text/plain"),  # a name that is no suffix
        ("x.webp", b"RIFF\x10\0\0\0WEBPVP8 ", None, "image/webp"),
    ],
)
def test_the_type_of_a_file(filename: str, head: bytes, declared: str | None, expected: str) -> None:
    assert mime_type_of(filename, head, declared) == expected


@given(filename=NAMES, head=st.binary(max_size=40), declared=st.none() | ANY_TEXT)
def test_every_file_has_a_type_without_surprises(filename: str, head: bytes, declared: str | None) -> None:
    mime = mime_type_of(filename, head, declared)
    assert mime.isascii()
    assert mime.count("/") == 1
    assert not set(mime) & set(' ;\r\n"')


@pytest.mark.parametrize(
    "mime",
    ["text/plain", "text/html; charset=utf-8", "application/json", "application/ld+json", "image/svg+xml",
     "application/xml", "application/yaml", "application/javascript", "TEXT/CSV"],
)  # fmt: skip
def test_text_types(mime: str) -> None:
    assert is_text(mime)


@pytest.mark.parametrize("mime", ["image/png", "application/pdf", "application/octet-stream", "audio/wav", ""])
def test_other_types(mime: str) -> None:
    assert not is_text(mime)


@pytest.mark.parametrize(
    ("filename", "mime", "expected"),
    [
        ("shot", "image/png", "shot.png"),
        ("shot", "image/jpeg", "shot.jpg"),
        ("shot.jpeg", "image/png", "shot.jpeg"),
        ("notes", "text/plain; charset=utf-8", "notes.txt"),
        ("blob", "application/octet-stream", "blob.bin"),
        ("thing", "application/x-nobody-knows", "thing"),
    ],
)
def test_a_missing_suffix_is_added(filename: str, mime: str, expected: str) -> None:
    assert with_suffix(filename, mime) == expected


@given(name=NAMES, mime=st.sampled_from(["image/png", "text/html", "application/octet-stream", "x/y"]))
def test_a_name_with_a_suffix_added_is_still_safe(name: str, mime: str) -> None:
    named = with_suffix(safe_filename(name, "file"), mime)
    assert safe_filename(named, "file") == named
    assert with_suffix(named, mime) == named


def test_every_added_suffix_means_its_type() -> None:
    """The two directions of the table agree."""
    for mime in ("image/png", "image/jpeg", "text/markdown", "application/json", "audio/mpeg", "text/html"):
        suffix = suffix_of(mime)
        assert suffix is not None
        assert mime_type_of(f"a.{suffix}", b"", None) == mime


OFFICE = "application/vnd.openxmlformats-officedocument"
OASIS = "application/vnd.oasis.opendocument"
SUFFIXES = {
    "text/plain": "txt text log ini conf", "text/markdown": "md markdown", "text/x-rst": "rst", "text/html": "html htm",
    "text/css": "css", "text/csv": "csv", "text/tab-separated-values": "tsv", "text/javascript": "js mjs",
    "text/x-typescript": "ts", "text/x-python": "py", "text/x-java": "java", "text/x-c": "c h", "text/x-go": "go",
    "text/x-rust": "rs", "application/x-sh": "sh", "application/sql": "sql", "text/calendar": "ics",
    "text/vcard": "vcf", "text/x-diff": "diff patch", "text/x-tex": "tex", "application/json": "json har",
    "application/jsonl": "jsonl", "application/x-ndjson": "ndjson", "application/geo+json": "geojson",
    "application/x-ipynb+json": "ipynb", "application/xml": "xml", "application/yaml": "yaml yml",
    "application/toml": "toml", "application/pdf": "pdf", "application/postscript": "ps", "application/rtf": "rtf",
    "application/epub+zip": "epub", "application/msword": "doc", "application/vnd.ms-excel": "xls",
    "application/vnd.ms-powerpoint": "ppt", f"{OFFICE}.wordprocessingml.document": "docx",
    f"{OFFICE}.spreadsheetml.sheet": "xlsx", f"{OFFICE}.presentationml.presentation": "pptx", f"{OASIS}.text": "odt",
    f"{OASIS}.spreadsheet": "ods", f"{OASIS}.presentation": "odp", "image/png": "png", "image/jpeg": "jpg jpeg",
    "image/gif": "gif", "image/webp": "webp", "image/svg+xml": "svg", "image/avif": "avif", "image/heic": "heic",
    "image/tiff": "tiff tif", "image/bmp": "bmp", "image/vnd.microsoft.icon": "ico", "audio/mpeg": "mp3",
    "audio/wav": "wav", "audio/flac": "flac", "audio/ogg": "ogg opus", "audio/mp4": "m4a", "audio/aac": "aac",
    "video/mp4": "mp4", "video/webm": "webm", "video/quicktime": "mov", "video/x-matroska": "mkv",
    "video/x-msvideo": "avi", "application/zip": "zip", "application/gzip": "gz tgz", "application/x-tar": "tar",
    "application/x-bzip2": "bz2", "application/x-xz": "xz", "application/x-7z-compressed": "7z",
    "application/zstd": "zst", "application/wasm": "wasm", "application/vnd.sqlite3": "sqlite",
    "application/vnd.apache.parquet": "parquet", "font/ttf": "ttf", "font/woff2": "woff2",
}  # fmt: skip
"""The usual suffixes of each type. The one that is added comes first."""


@each_row(("mime", "suffixes"), SUFFIXES.items())
def test_a_suffix_tells_the_type_and_the_usual_one_is_added(mime: str, suffixes: str) -> None:
    for suffix in suffixes.split():
        assert mime_type_of(f"a.{suffix}", b"\xff\xfe", None) == mime
    assert suffix_of(mime) == suffixes.split()[0]


@pytest.mark.parametrize(
    ("mime", "suffix"),
    [
        ("image/jpg", "jpg"), ("audio/mp3", "mp3"), ("audio/x-wav", "wav"), ("audio/wave", "wav"),
        ("audio/webm", "webm"), ("application/x-yaml", "yaml"), ("text/yaml", "yaml"), ("text/xml", "xml"),
        ("application/javascript", "js"), ("image/x-icon", "ico"), ("application/x-gzip", "gz"),
        ("application/octet-stream", "bin"), ("application/ogg", None), ("", None),
    ],
)  # fmt: skip
def test_types_of_other_spellings_have_the_same_suffix(mime: str, suffix: str | None) -> None:
    assert suffix_of(mime) == suffix


SIGNATURES = [
    (b"%PDF-1.7\n", "application/pdf"), (b"\x89PNG\r\n\x1a\n\0\0", "image/png"),
    (b"\xff\xd8\xff\xe0", "image/jpeg"), (b"GIF87a\1\0", "image/gif"), (b"GIF89a\1\0", "image/gif"),
    (b"RIFF\1\2\3\4WEBPVP8L", "image/webp"), (b"RIFF\1\2\3\4WAVEfmt \x10", "audio/wav"),
    (b"\0\0\0\x1cftypavif\0", "image/avif"), (b"\0\0\0\x18ftypheic\0", "image/heic"),
    (b"II*\0\x08\0", "image/tiff"), (b"MM\0*\0\0", "image/tiff"), (b"fLaC\0\0", "audio/flac"),
    (b"ID3\4\0", "audio/mpeg"), (b"SQLite format 3\0\x10", "application/vnd.sqlite3"),
    (b"7z\xbc\xaf\x27\x1c\0\4", "application/x-7z-compressed"), (b"\xfd7zXZ\0\0\4", "application/x-xz"),
    (b"\0asm\1\0\0\0", "application/wasm"),
]  # fmt: skip
CONTAINERS = [
    (b"PK\3\4\x14\0", "application/zip"), (b"\x1f\x8b\x08", "application/gzip"), (b"OggS\0\2", "application/ogg"),
    (b"\0\0\0\x20ftypisom", "video/mp4"), (b"\x1a\x45\xdf\xa3\x9f", "video/x-matroska"),
]  # fmt: skip


@pytest.mark.parametrize(("head", "mime"), SIGNATURES)
def test_a_signature_counts_before_name_and_declaration(head: bytes, mime: str) -> None:
    """A signature counts only at its exact offset."""
    assert mime_type_of("a.csv", head, "text/html") == mime
    assert mime_type_of("a.csv", b"." + head, "text/html") == "text/html"


@pytest.mark.parametrize(("head", "mime"), CONTAINERS)
def test_a_container_signature_counts_last(head: bytes, mime: str) -> None:
    assert mime_type_of("a.nobody", head, "application/octet-stream") == mime
    assert mime_type_of("a.csv", head, None) == "text/csv"
    assert mime_type_of("a.nobody", head, "image/x-raw") == "image/x-raw"
    assert mime_type_of("a.nobody", b"." + head, None) in ("text/plain", "application/octet-stream")


@pytest.mark.parametrize(
    "declared",
    ["application/octet-stream", "binary/octet-stream", "application/x-binary", "application/force-download",
     "application/x-download", "application/unknown", "Application/Octet-Stream; a=b"],
)  # fmt: skip
def test_a_generic_declared_type_is_ignored(declared: str) -> None:
    assert mime_type_of("a.csv", b"a", declared) == "text/csv"


@pytest.mark.parametrize(
    "name",
    ["json", "jsonl", "x-ndjson", "json5", "xml", "yaml", "x-yaml", "toml", "javascript", "x-javascript", "ecmascript",
     "typescript", "sql", "graphql", "x-sh", "x-tex", "x+json", "x+xml", "x+yaml"],
)  # fmt: skip
def test_application_types_that_are_text(name: str) -> None:
    assert is_text(f"application/{name}")
    assert not is_text(f"application/{name}q")
    assert not is_text(f"audio/{name.partition('+')[0]}")
