"""File names are made safe whatever comes, and types are told by bytes before words."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.filename import NAME_MAX_BYTES, is_text, mime_type_of, safe_filename, suffix_of, with_suffix

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
    """Idempotent, whatever the second fallback."""
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
def test_types(filename: str, head: bytes, declared: str | None, expected: str) -> None:
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
