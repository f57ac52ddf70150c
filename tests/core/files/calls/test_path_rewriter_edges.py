"""Tests of the edges of the path rewriter: the exact end of a path, the characters around it, and the bound of the
work."""

from __future__ import annotations

import json

import pytest
from each_row import each_row
from isthmus.core.files.calls import path_rewriter
from isthmus.core.files.calls.path_rewriter import WORK_MAX, KnownPath, reword_result, reword_text

CWD = "/W/ws"
FOLDERS = ("/W/ws", "/W/in", "/W/out", "/W")
SHOT, DONE, DEEP = "artifact://s/a.png", "artifact://s/done", "artifact://s/d.txt"
KNOWN = (KnownPath(("/W/ws/a.png",), SHOT), KnownPath(("/W/ws/done",), DONE), KnownPath(("/W/ws/sub/d.txt",), DEEP))


def reword(text: str) -> str:
    return reword_text(text, KNOWN, CWD, FOLDERS)


@pytest.mark.parametrize("pair", ['""', "''", "``", "“”", "‘’", "<>"])
def test_a_bare_word_is_a_file_in_quotation_marks_only(pair: str) -> None:
    """The marks must be a pair, with nothing else between them."""
    opening, closing = pair
    assert reword(f"is {opening}done{closing} now") == f"is {opening}{DONE}{closing} now"
    for odd in (f"{opening}done", f"done{closing}", f"{opening}done {closing}", f"{opening} done{closing}"):
        assert reword(odd) == odd


@pytest.mark.parametrize("pair", ["\"'", "'`", "()", "[]", "{}", "<'", "**", "  ", "”“", "><"])
def test_other_marks_do_not_make_a_file_of_a_word(pair: str) -> None:
    assert reword(f"{pair[0]}done{pair[1]}") == f"{pair[0]}done{pair[1]}"


@pytest.mark.parametrize(
    ("text", "reworded"),
    [
        ("[x](done)", f"[x]({DONE})"),
        ("x](done)", f"x]({DONE})"),
        ("](done)", f"]({DONE})"),
        ("x (done)", "x (done)"),
        ("](done", "](done"),
        ("[done]", "[done]"),
        ("[a.png]", f"[{SHOT}]"),
        ("[a.png](x)", "[a.png](x)"),
        ("[a.png] (x)", f"[{SHOT}] (x)"),
        ("[./a.png](x)", f"[{SHOT}](x)"),
        ("[x](<a.png>)", f"[x](<{SHOT}>)"),
        ("[x](<./a.png>)", f"[x](<{SHOT}>)"),
        ("](my a.png", "](my a.png"),
        ("[x](my ./a.png)", "[x](my ./a.png)"),
        ("[)](my a.png)", "[)](my a.png)"),
        ("[\n](my a.png)", "[\n](my a.png)"),
        ("[x]() a.png", f"[x]() {SHOT}"),
        ("[x](\n a.png", f"[x](\n {SHOT}"),
        ("[x](y) a.png", f"[x](y) {SHOT}"),
        ("[x](y\n a.png", f"[x](y\n {SHOT}"),
        ("[x](y [z](a.png)", f"[x](y [z]({SHOT})"),
    ],
)
def test_the_target_of_a_link_goes_to_its_bracket(text: str, reworded: str) -> None:
    assert reword(text) == reworded


@pytest.mark.parametrize(("length", "is_within"), [(0, True), (253, True), (254, False), (255, False)])
def test_a_target_is_looked_for_256_characters_back(length: int, is_within: bool) -> None:
    """A longer text is no link target."""
    text = "[x](" + "y" * length + " a.png"
    assert reword(text) == (text if is_within else text.replace("a.png", SHOT))


@pytest.mark.parametrize("character", [*list("~/\\%0$@+=-."), "%20", "\\/", "..", ".../", "-x", "---x", ".x"])
def test_the_characters_that_continue_a_path(character: str) -> None:
    """Escapes, further names and suffixes make it longer if something of theirs follows. A mark at the end does not."""
    longer = {"~", "/", "0", "%20", "\\/", ".../", "-x", "---x", ".x"}
    text = f"/W/ws/a.png{character}"
    assert (reword(text) == f"{SHOT}{character}") is (character not in longer), reword(text)


@each_row("scheme", ["file:", "file://", "file://localhost", "FILE:", "FiLe://LocalHost"])
@each_row(("before", "is_one"), [("", True), (" ", True), ("(", True), ("x", False), ("-", False)])
def test_a_scheme_goes_with_its_path(scheme: str, before: str, is_one: bool) -> None:
    text = f"{before}{scheme}/W/ws/a.png"
    assert (reword(text) == f"{before}{SHOT}") is is_one


def result(*texts: str) -> bytes:
    return json.dumps({"content": [{"type": "text", "text": text} for text in texts]}).encode()


def texts_of(made: bytes) -> list[str]:
    return [block["text"] for block in json.loads(made)["content"]]


def test_an_ambiguous_name_is_known_by_its_folder() -> None:
    """The folder is relative to the working directory, or has a dot before it. A detour does not count."""
    known = (KnownPath(("/W/ws/sub/d.txt",), DEEP, has_name=False), KnownPath(("/W/out/e.txt",), DONE, has_name=False))
    text = "d.txt sub/d.txt ./sub/d.txt ../out/e.txt ./../out/e.txt e.txt"
    assert reword_text(text, known, CWD) == f"d.txt {DEEP} {DEEP} {DONE} ./../out/e.txt e.txt"


def test_the_longest_folder_counts() -> None:
    """The order of the known files does not matter."""
    short, long = KnownPath(("/b/a.png",), "artifact://short"), KnownPath(("/x!/b/a.png",), "artifact://long")
    for known in ((short, long), (long, short)):
        assert reword_text("/x!/b/a.png /b/a.png", known, CWD) == "artifact://long artifact://short"


@pytest.mark.parametrize("folders", [("/",), ("/.",)])
def test_the_root_is_no_folder(folders: tuple[str, ...]) -> None:
    assert reword_text("see /etc/x, / and //", (), CWD, folders) == "see /etc/x, / and //"


@pytest.mark.parametrize(
    ("cwd", "way"), [("/W/Q", "../out/x"), ("/W/Q/", "../out/x"), ("/W", "out/x"), ("/W/", "out/x"), ("/V/Q", "out/x")]
)
def test_a_folder_is_as_seen_from_the_working_directory(cwd: str, way: str) -> None:
    assert reword_text("/W/out/x", (), cwd, ("/W/out",)) == way


@pytest.mark.parametrize(
    "spelling", [r"\/W\/ws\/é \"x\".png", r"\/W\/ws\/\u00e9 \"x\".png", "/W/ws/%C3%A9%20%22x%22.png", '/W/ws/é "x".png']
)
def test_a_name_is_found_by_itself_however_it_is_escaped(spelling: str) -> None:
    """No folder is known here."""
    known = (KnownPath(('/W/ws/é "x".png',), SHOT),)
    assert reword_text(f"see {spelling}, please", known, CWD) == f"see {SHOT}, please"


def test_escapes_hide_nothing_in_a_result() -> None:
    for text in (rb"\u0061.png", rb"\u002fW\u002fws/a\u002epng"):
        made = reword_result(b'{"content":[{"type":"text","text":"%b"}]}' % text, KNOWN[:1], CWD, (), None)
        assert texts_of(made) == [SHOT]


def test_a_path_that_is_no_text_is_found_nowhere() -> None:
    """File systems have such names. They do not affect other paths."""
    known = (KnownPath(("/W/ws/\ud800 .png",), DONE), *KNOWN[:1])
    assert texts_of(reword_result(result("a.png ?.png"), known, CWD, FOLDERS, None)) == [f"{SHOT} ?.png"]


@pytest.mark.parametrize(
    ("structured", "text", "made"),
    [
        (["/W/ws/a.png", "/W/ws/a.png"], '["/W/ws/a.png","/W/ws/a.png"]', '["/W/ws/a.png","/W/ws/a.png"]'),
        (["/W/ws/a.png", "/W/ws/a.png"], ' ["/W/ws/a.png", "/W/ws/a.png"]', ' ["/W/ws/a.png", "/W/ws/a.png"]'),
        (["/W/ws/a.png", "/W/ws/a.png"], '["/W/ws/a.png"]', f'["{SHOT}"]'),
        (["/W/ws/a.png", "/W/ws/a.png"], '{"x":"/W/ws/a.png"}', f'{{"x":"{SHOT}"}}'),
        (["/W/ws/a.png", "/W/ws/a.png"], '"/W/ws/a.png"', f'"{SHOT}"'),
    ],
)
def test_a_text_that_repeats_kept_strings_is_kept(structured: object, text: str, made: str) -> None:
    """The schema keeps the strings, and so the text with the same JSON. A text of any other value is reworded."""
    whole = {"content": [{"type": "text", "text": text}], "structuredContent": structured}
    schema = b'{"items":{"maxLength":12}}'
    assert texts_of(reword_result(json.dumps(whole).encode(), KNOWN, CWD, FOLDERS, schema)) == [made]


def test_a_text_of_another_value_is_reworded_by_itself() -> None:
    whole = {"content": [{"type": "text", "text": '{"x":"/W/ws/a.png"}'}], "structuredContent": {"b": "/W/ws/a.png"}}
    made = json.loads(reword_result(json.dumps(whole).encode(), KNOWN, CWD, FOLDERS, None))
    assert made["content"][0]["text"] == f'{{"x":"{SHOT}"}}'
    assert made["structuredContent"] == {"b": SHOT}


STRING, HIT = 256, 8000
"""The measured cost of each string and of each occurrence of a name, beside the search itself."""


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize(
    ("text", "half", "whole", "later"),
    [
        ("see /W/ws/a.png, or a.png", f"see {SHOT}, or a.png", f"see {SHOT}, or {SHOT}", 1),
        ("a.png, from /W/ws/a.png", f"a.png, from {SHOT}", f"{SHOT}, from {SHOT}", 2),
    ],
)
def test_work_is_counted_by_the_character_and_the_name(
    text: str, half: str, whole: str, later: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bound that is just enough allows all steps. One unit less leaves out the last step, that of relative paths.

    Each of the two searches of a text finds the name twice, and before each occurrence some work must be left.
    """
    known = (KnownPath(("/W/ws/a.png",), SHOT),)
    each = (len(text) + STRING) + 2 * HIT + (len(half) + STRING) + 2 * HIT
    for missing, last in ((0, whole), (1, half)):
        monkeypatch.setattr(path_rewriter, "WORK_MAX", count * each - later * HIT + 1 - missing)
        made = texts_of(reword_result(result(*[text] * count), known, CWD, (), None))
        assert made == [whole] * (count - 1) + [last]


@pytest.mark.parametrize("missing", [0, 1])
def test_folders_are_work_too(missing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each folder counts as a name."""
    text, after = "in /W/out/x, y", "in ../out/x, y"
    folders = ("/W/ws", "/W/out")
    forms = 2 * len(folders)  # plain, and escaped within JSON
    monkeypatch.setattr(path_rewriter, "WORK_MAX", forms * (len(text) + STRING) + 1 - missing)
    assert texts_of(reword_result(result(text), (), CWD, folders, None)) == [text if missing else after]


def test_the_bound_itself() -> None:
    """The bound counts characters times names, and takes less than a second."""
    assert WORK_MAX == 67_108_864


def test_the_first_of_two_keys_that_would_be_equal_is_reworded() -> None:
    structured = {"/W/ws/a.png": 1, "file:///W/ws/a.png": 2, "n": {"file:///W/ws/a.png": 3, "/W/ws/a.png": 4}}
    made = reword_result(json.dumps({"structuredContent": structured}).encode(), KNOWN, CWD, (), None)
    assert json.loads(made)["structuredContent"] == {
        SHOT: 1,
        "file:///W/ws/a.png": 2,
        "n": {SHOT: 3, "/W/ws/a.png": 4},
    }
