"""Tests of paths in text: they are found in texts of real servers, with every reading that they allow, and never in a
URL."""

from __future__ import annotations

import itertools
import posixpath
import re
import time

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.files.calls.paths_in_text import (
    CANDIDATES_MAX,
    PATH_MAX_CHARS,
    TEXT_MAX_CHARS,
    default_searches,
    mentions,
    reads_as_path,
    spellings,
)


def candidates(text: str, patterns: tuple[str, ...]) -> tuple[str, ...]:
    """The readings of all mentions, in order."""
    return tuple(dict.fromkeys(reading for found in mentions(text, patterns) for reading in found))


def first(text: str, *regexes: str) -> str | None:
    found = candidates(text, regexes)
    return found[0] if found else None


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("Saved to /tmp/out.png", "/tmp/out.png"),
        ("Saved to /tmp/out.png.", "/tmp/out.png"),
        ("(see /tmp/out.png), done", "/tmp/out.png"),
        ("'/tmp/out.png'.", "/tmp/out.png"),
        ("file=`/tmp/my out.png`!", "/tmp/my out.png"),
        ("“/tmp/my out.png”", "/tmp/my out.png"),
        ("path=/tmp/out.png;", "/tmp/out.png"),
        ("saved:/tmp/out.png", "/tmp/out.png"),
        ("See https://example.com/x.png, saved to /tmp/out.png", "/tmp/out.png"),
        ("- [Shot](/tmp/my shots/a (1).png)", "/tmp/my shots/a (1).png"),
        ('![Shot](/tmp/a.png "the title")', "/tmp/a.png"),
        ("[Shot](</tmp/my a.png>)", "/tmp/my a.png"),
        ("[Shot](./my%20a.png)", "./my%20a.png"),
        ("[Shot](file:///tmp/my%20a.png)", "/tmp/my a.png"),
        ("at file:///tmp/a.png, yes", "/tmp/a.png"),
        ("at file://localhost/tmp/a.png", "/tmp/a.png"),
        (r"C:\Users\me\out.png.", r"C:\Users\me\out.png"),
        (r'"C:\Program Files\out.png"', r"C:\Program Files\out.png"),
        ("~/out.png is ready", "~/out.png"),
        ("отчёт в /tmp/отчёт.pdf", "/tmp/отчёт.pdf"),
        ("Document report.docx created successfully", "report.docx"),
        ("wrote sub/dir/shot.jpeg", "sub/dir/shot.jpeg"),
        ("a.log: ../out/console.log#L1-L2", "../out/console.log"),
    ],
)
def test_the_likeliest_reading_comes_first(text: str, path: str) -> None:
    assert first(text) == path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (r"C:\Users\me\out.png", "C:/Users/me/out.png"),
        ("[Shot](./my%20a.png)", "./my a.png"),
        ("saved to /tmp/my report.docx", "/tmp/my report.docx"),
        ("error in /srv/a.py:12:3", "/srv/a.py"),
        ("[log](../a.log#L1-L2)", "../a.log"),
        ("/tmp/out.png.", "/tmp/out.png."),
    ],
)
def test_doubtful_readings_follow(text: str, path: str) -> None:
    assert path in candidates(text, ())


@pytest.mark.parametrize(
    "text",
    [
        "https://example.com/x.png",
        "see <https://example.com/a/b.png>.",
        "[x](https://example.com/a.png)",
        "http://[::1]:80/tmp/x.png",
        "https://h/?next=file:///etc/passwd",
        "https://h/?path=/etc/passwd&name=report.pdf&dir=a/b",
        "ws://h/a/b.c and demo://resource/text/1.txt",
        "# <h1>Hi</h1> // a comment",
        "nothing here",
        "",
    ],
)
def test_no_part_of_a_url_is_a_path(text: str) -> None:
    assert candidates(text, ()) == ()


# Texts of released servers (Playwright, Word, Pandoc, filesystem), which ran in /srv/case/ws.
@pytest.mark.parametrize(
    ("text", "written"),
    [
        (
            "### Page\n- Page URL: http://127.0.0.1:8901/\n### Snapshot\n- [Snapshot](../out/page-2026-11-21.yml)\n"
            "### Events\n- New console entries: ../out/console-2026-11-21T21-30.log#L1-L2",
            ["/srv/case/out/page-2026-11-21.yml", "/srv/case/out/console-2026-11-21T21-30.log"],
        ),
        (
            "### Result\n- [Screenshot of viewport](./named.png)\n### Ran Playwright code\n```js\n"
            "// Screenshot viewport and save it as ./named.png\nawait page.screenshot({\n  path: './named.png',\n"
            "  scale: 'css'\n});\n```",
            ["/srv/case/ws/named.png"],
        ),
        ("- [Screenshot](sub/dir/shot.jpeg)", ["/srv/case/ws/sub/dir/shot.jpeg"]),
        (
            '### Events\n- Downloading file report.csv ...\n- Downloaded file report.csv to "../out/report.csv"',
            ["/srv/case/out/report.csv"],
        ),
        (
            '- link [cursor=pointer]:\n    - /url: /slow.bin\n- Downloaded file slow.bin to "../out/slow.bin"',
            ["/srv/case/out/slow.bin"],
        ),
        (
            "Trace recording stopped.\n- [Trace](../out/traces/trace-17.trace)\n- [Resources](../out/traces/resources)",
            ["/srv/case/out/traces/trace-17.trace", "/srv/case/out/traces/resources"],
        ),
        ("File successfully converted and saved to: /srv/case/out/a.docx", ["/srv/case/out/a.docx"]),
        ("Successfully wrote to /srv/case/ws/out.txt", ["/srv/case/ws/out.txt"]),
        ("Successfully moved /srv/case/ws/out.txt to /srv/case/ws/out2.txt", ["/srv/case/ws/out2.txt"]),
        ("Document report.docx created successfully", ["/srv/case/ws/report.docx"]),
        ("Document copied to report_copy.docx", ["/srv/case/ws/report_copy.docx"]),
    ],
)
def test_files_in_texts_of_real_servers_are_found(text: str, written: list[str]) -> None:
    found = {posixpath.normpath(posixpath.join("/srv/case/ws", path)) for path in candidates(text, ())}
    assert found >= set(written)


def test_a_match_is_its_path_group_or_its_first_group_or_all_of_it() -> None:
    text = "one=/a/1.txt two=/a/2.txt"
    assert candidates(text, (r"one=(?P<path>\S+)",)) == ("/a/1.txt",)
    assert candidates(text, (r"two=(\S+)", r"one=(\S+)")) == ("/a/2.txt", "/a/1.txt")
    assert candidates(text, (r"/a/2\S+",)) == ("/a/2.txt",)


def test_every_match_of_every_pattern_is_tried_up_to_a_bound() -> None:
    text = " ".join(f"/a/{n}.txt" for n in range(200))
    found = candidates(text, (r"/a/\S+",))
    assert found == tuple(f"/a/{n}.txt" for n in range(CANDIDATES_MAX))


def test_long_text_is_searched_at_both_ends() -> None:
    text = "/a/first.txt" + " x" * TEXT_MAX_CHARS + " /a/middle.txt" + " x" * TEXT_MAX_CHARS + " /a/last.txt"
    assert candidates(text, ()) == ("/a/first.txt", "/a/last.txt")


@given(text=st.text(st.sampled_from("/\\.~:#%\"'`“”()[]<>{} \n\0aZ9é-_file?")))
def test_any_text_gives_usable_candidates(text: str) -> None:
    found = candidates(text, ()) + tuple(spellings(text))
    for path in found:
        assert path
        assert "\0" not in path
        assert "\n" not in path
        assert not path.startswith(("http:", "https:"))


@given(name=st.text(st.characters(categories=["L", "N"], include_characters=" -_,+"), min_size=1, max_size=20))
def test_a_quoted_or_linked_path_is_found_whatever_it_is_called(name: str) -> None:
    path = f"/srv/{name}/é.png"
    assert first(f"Saved '{path}'.") == path
    assert first(f"- [Link]({path})") == path


def test_each_mention_has_its_own_readings() -> None:
    text = 'wrote "../out/a b.log#L1-L2" and [shot](./s.png), see ./s.png'
    found = mentions(text, ())
    assert found[0] == ("./s.png",)
    assert ("../out/a b.log#L1-L2", "../out/a b.log") in found
    assert sum("./s.png" in readings for readings in found) == 1


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("已保存到/tmp/报告.pdf。", "/tmp/报告.pdf"),
        ("文件 /tmp/out.png已保存", "/tmp/out.png"),
        ("「/tmp/a.png」", "/tmp/a.png"),
    ],
)
def test_scripts_without_spaces_hide_no_path(text: str, path: str) -> None:
    assert any(path in readings for readings in mentions(text, ()))


@pytest.mark.parametrize(
    "text",
    ["/a/b", "~/a", "./a", "../a b c d e f g h i j", "C:\\a", "file:///a", "out.png", "my last report.docx", "a/b.c"],
)
def test_a_whole_string_reads_as_a_path(text: str) -> None:
    assert reads_as_path(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "hello", "/", "//a", "http://h/a.png", "a.b.", "See the seven pages of the report in a.png", "/a\n/b",
        "/a\0", "/" + "a" * PATH_MAX_CHARS, "1.5 ", "and/or",
    ],
)  # fmt: skip
def test_other_strings_do_not_read_as_paths(text: str) -> None:
    assert not reads_as_path(text)


def test_a_path_with_spaces_ends_at_the_last_suffix_within_reach() -> None:
    """The expected ones are those of one expression for the whole path, which takes 255 times as long."""
    whole = re.compile(r"(?<![/.\w])/(?!/)[^\s\"'`<>|][^\n\"'`<>|]{0,255}\.[A-Za-z0-9]{1,8}(?!\w)")
    pieces = ["/a", " b", ".txt", ".b_", "\n", '"', "/", "x" * 100, " "]
    for picks in itertools.product(range(len(pieces)), repeat=5):
        text = "".join(pieces[pick] for pick in picks)
        *_, spaced = default_searches(text)
        assert list(spaced) == whole.findall(text), text


HOSTILE = [
    "a", "/", "/a ", "( /", "](", "](a", "](a)", "](()", "'/", "'a.b", '"a ', "a/", "a.", "a.aaaaaaaaa", "a:", "a://",
    "file:/", "C:/", "[", "\\", "~/", ".", "@a.b", "`./", "-", "%", "#", "\n/", "é", "报/",
]  # fmt: skip


def costs_s(text: str) -> list[float]:
    """The processor time of each search of a text, the least of three runs."""
    runs = []
    for _ in range(3):
        times = []
        for search in default_searches(text):
            began = time.process_time()
            for _ in search:
                pass
            times.append(time.process_time() - began)
        runs.append(times)
    return [min(times) for times in zip(*runs, strict=True)]


@each_row("piece", HOSTILE)
def test_the_cost_of_a_search_grows_with_the_text_and_no_faster(piece: str) -> None:
    """Eight times the text costs about eight times as much. A quadratic search would cost sixty-four times as much."""
    size = TEXT_MAX_CHARS // 8
    short, long = (costs_s((piece * (n // len(piece) + 1))[:n]) for n in (size // 8, size))
    for place, (few, many) in enumerate(zip(short, long, strict=True)):
        assert many < 30 * few + 0.002, f"search {place}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](/b/c.txt)", ["/b/c.txt"]),
        ("![a]( /b/c.txt )", ["/b/c.txt"]),
        ("([a](/b/c.txt))", ["/b/c.txt"]),
        ('[a](/b/c.txt "its title")', ["/b/c.txt", '/b/c.txt "its title"']),
        ("/b/c.txt:12", ["/b/c.txt:12", "/b/c.txt"]),
        ("/b/c.txt#L1", ["/b/c.txt#L1", "/b/c.txt"]),
        ("a.", ["a", "a."]),
        ("'a'", ["a", "'a'"]),
        (".", ["."]),
        ("", []),
        ("https://h/a.txt", []),
        ("/a\0b", []),
        ("/" + "a" * (PATH_MAX_CHARS - 1), ["/" + "a" * (PATH_MAX_CHARS - 1)]),
        ("/" + "a" * PATH_MAX_CHARS, []),
    ],
)
def test_a_piece_of_text_has_these_readings(text: str, expected: list[str]) -> None:
    assert spellings(text) == expected


def test_only_so_many_layers_are_peeled() -> None:
    """A path that is wrapped deeper keeps the inner layers."""
    assert spellings("(" * 16 + "a.txt" + ")" * 16)[0] == "a.txt"
    assert spellings("(" * 17 + "a.txt" + ")" * 17)[0] == "(a.txt)"
