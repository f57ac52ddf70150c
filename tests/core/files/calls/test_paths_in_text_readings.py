"""Tests of the readings of a piece of text: what is peeled, decoded, cut off and replaced, and what is left."""

from __future__ import annotations

import string

import pytest
from each_row import each_row
from isthmus.core.files.calls.paths_in_text import (
    CANDIDATES_MAX,
    PATH_MAX_CHARS,
    TEXT_MAX_CHARS,
    mentions,
    reads_as_path,
    spellings,
)

PAIRS = ['""', "''", "``", "“”", "‘’", "«»", "<>", "()", "[]", "{}"]
TRAILING = ".,;:!?\"'`”’»…。，、；：！？）】」』》"


@each_row("letter", string.ascii_letters + string.digits + "_-+@é報")
def test_no_letter_is_punctuation(letter: str) -> None:
    """A path may begin with any letter, contain it, and end with it."""
    for path in (f"{letter}a/b{letter}c/d{letter}", letter, letter * 2, f"/{letter}"):
        assert spellings(path)[0] == path
        assert spellings(f"'{path}'.")[0] == path


@each_row("pair", PAIRS)
@each_row("path", ["a.txt", "ab", "a", "/x y/z"])
def test_each_pair_of_quotes_and_brackets_is_peeled(pair: str, path: str) -> None:
    """Each layer is peeled, with the space within. The unpeeled text is a later reading."""
    first, last = pair
    assert spellings(f"{first}{path}{last}")[0] == path
    assert spellings(f"{first} {path} {last}")[0] == path
    assert spellings(f"{first}{first}{path}{last}{last}")[0] == path
    assert f"{first}{path}{last}" in spellings(f"{first}{path}{last}")


@each_row("mark", TRAILING)
def test_each_mark_behind_a_path_is_peeled(mark: str) -> None:
    assert spellings(f"/a/b{mark}") == ["/a/b", f"/a/b{mark}"]
    assert spellings(f"/a/b {mark}{mark}")[0] == "/a/b"


@pytest.mark.parametrize("pair", ["()", "[]", "{}", "<>"])
def test_a_bracket_that_is_not_a_paths_own_is_peeled(pair: str) -> None:
    """A bracket that the path opened or closed itself stays. One too many is peeled."""
    first, last = pair
    assert spellings(f"/a{first}1{last}")[0] == f"/a{first}1{last}"
    assert spellings(f"/a{first}1{last}{last}")[0] == f"/a{first}1{last}"
    assert spellings(f"/a1{last}")[0] == "/a1"
    assert spellings(f"{first}/a1")[0] == "/a1"
    if pair != "<>":
        assert spellings(f"{first}1{last}/a")[0] == f"{first}1{last}/a"


@pytest.mark.parametrize("mark", ['"', "'", "`", "“", "‘", "«", "<"])
def test_a_quote_that_nothing_closes_is_peeled(mark: str) -> None:
    """The space behind it is peeled too."""
    assert spellings(f"{mark}/a/b")[0] == "/a/b"
    assert spellings(f"{mark} /a/b")[0] == "/a/b"


@each_row(
    ("text", "expected"),
    [
        # Percent escapes, and a plain percent sign.
        ("a%20b", ["a%20b", "a b"]),
        ("100%", ["100%"]),
        ("a%00b", ["a%00b"]),
        # A fragment, lines of code.
        ("a#b#c", ["a#b#c", "a"]),
        ("#b", ["#b"]),
        ("/b/c.txt:12:3", ["/b/c.txt:12:3", "/b/c.txt"]),
        ("/b/c:d", ["/b/c:d"]),
        ("/b/c:12:d", ["/b/c:12:d"]),
        # Windows paths.
        (r"C:\a\b", [r"C:\a\b", "C:/a/b"]),
        (r"a\b", [r"a\b", "a/b"]),
        # Text that continues in a script without spaces.
        ("/a.png已保存", ["/a.png已保存", "/a.png"]),
        # Links.
        ("[a](b)", ["b"]),
        ("[a]( b )", ["b"]),
        ("('[a](b)')", ["b"]),
        ("[a](<b c>)", ["b c", "<b c>"]),
        ("[a](b 'c')", ["b", "b 'c'"]),
        ('/b/c "d"', ["/b/c", '/b/c "d"']),
        # URIs.
        ("file:///a/b", ["/a/b"]),
        ("FILE:///a/b", ["/a/b"]),
        ("file:/a/b", ["/a/b"]),
        ("file://localhost/a", ["/a"]),
        ("file://127.0.0.1/a", ["/a"]),
        ("file:///a%20b", ["/a b"]),
        ("file:///a#b", ["/a", "/a#b"]),
        ("file:///a?b", ["/a", "/a?b"]),
        ("file:///a?b#c?d", ["/a", "/a?b#c?d"]),
        ("file:///C:/a", ["C:/a"]),
        (r"file:///c:\a", [r"c:\a"]),
        ("file:///C:a", ["/C:a"]),
        ("file:///CC:/a", ["/CC:/a"]),
        ("file:///a/file:b", ["/a/file:b"]),
        ("file:///a%00b", []),
        ("file:", ["file"]),
        # URLs, and other schemes.
        ("http://h/a", []),
        ("x-y.z+1:a", []),
        (r"ab:\c", [r"ab:\c", "ab:/c"]),
        # Nothing.
        ("  ", []),
        ("a\nb", []),
        ("a\rb", []),
        ("a\0b", []),
        (" a ", ["a"]),
    ],
)
def test_the_readings_of_a_piece_of_text(text: str, expected: list[str]) -> None:
    """All readings are compared, the likeliest first, and each once."""
    assert spellings(text) == expected


@pytest.mark.parametrize("sign", ["\0", "\n", "\r"])
def test_a_text_with_a_line_end_or_null_is_no_path(sign: str) -> None:
    """The position of the character does not matter, and no other character has that effect."""
    for text in (f"/a{sign}b", f"./{sign}b"):
        assert not reads_as_path(text)
        assert spellings(text) == []
    assert reads_as_path("/aQb") and spellings("/aQb") == ["/aQb"]


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("/" + "a" * (PATH_MAX_CHARS - 1), True),
        ("/" + "a" * PATH_MAX_CHARS, False),
        ("a b c d e f g h.txt", True),
        ("a b c d e f g h i.txt", False),
        ("a b c d e f g h", False),
        ("mailto:a.txt", False),
        ("a:b.txt", True),
    ],
)
def test_a_whole_string_is_a_path_up_to_so_many_letters_and_words(text: str, reads: bool) -> None:
    assert reads_as_path(text) is reads


def test_a_text_is_searched_in_full_up_to_a_size_and_beyond_at_both_ends() -> None:
    """A path in the middle of the longest text that is searched in full is found. In a longer text, the path across the
    middle becomes two pieces on lines of their own."""
    path = "/dir/middle.txt"
    half = TEXT_MAX_CHARS // 2
    whole = " " * (half - 7) + path
    whole += " " * (TEXT_MAX_CHARS - len(whole))
    assert mentions(whole, ()) == [(path,)]
    assert mentions(whole + " ", (r"\S+",)) == [("/dir/mi",), ("dle.txt",)]
    ends = "/dir/first.txt" + " " * TEXT_MAX_CHARS + "/dir/last.txt"
    assert mentions(ends, ()) == [("/dir/first.txt",), ("/dir/last.txt",)]
    assert mentions("/1.txt" + " " * (half - 6) + "/2.txt" + " " * (half - 5), (r"/\S+",)) == [("/1.txt",)]


def test_repeated_mentions_do_not_count_against_the_bound() -> None:
    """A repeated mention is left out and not counted."""
    text = "/a/1.txt /a/1.txt /a/2.txt /a/1.txt /a/3.txt"
    assert mentions(text, (r"/a/\S+",)) == [("/a/1.txt",), ("/a/2.txt",), ("/a/3.txt",)]
    many = " ".join(f"/a/{n // 2}.txt" for n in range(4 * CANDIDATES_MAX))
    assert len(mentions(many, (r"/a/\S+",))) == CANDIDATES_MAX


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"at (?P<path>/\S+)", "/b"),
        (r"(at) (?P<path>/\S+)", "/b"),
        (r"(?P<path>/none)|at (\S+)", "at /b"),
        (r"(at) (\S+)", "at"),
        (r"(none)?at (\S+)", "at /b"),
        (r"at \S+", "at /b"),
        (r"(?P<other>at)", "at"),
    ],
)
def test_the_path_group_of_a_match_is_read_or_its_first_group_or_all_of_it(pattern: str, found: str) -> None:
    """A group that did not match counts as absent."""
    assert mentions("at /b", (pattern,)) == [(found,)]
