"""Tests of the removal of a session's paths: none is left wherever it stands, and every other byte stays."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from each_row import each_row
from hypothesis import example, given
from hypothesis import strategies as st
from isthmus.core.files.calls import path_rewriter
from isthmus.core.files.calls.path_rewriter import KnownPath, Reworder, reword_result
from isthmus.core.files.calls.session_paths import ROOT, SessionPaths

ID = "5f3c0a9e8b7d4c21a6e0d9f8b7c6a5e4"
BASE, TMP, THERE = f"/srv/isthmus/workspaces/{ID}", f"/tmp/isthmus-{ID}", f"/data/ü b/{ID}"
CWD = f"{BASE}/ws"
FOLDERS = (f"{BASE}/ws", f"{BASE}/out", f"{BASE}/in", BASE)
CALLED = {TMP: "tmp"}
SHOT, LOG, UPLOAD = "artifact://sessions/s/1/a.png", "artifact://sessions/s/2/y.log", "upload://sessions/s/u"
KNOWN = (
    KnownPath((f"{BASE}/ws/a.png", f"{THERE}/ws/a.png"), SHOT),
    KnownPath(("/var/log/y.log",), LOG),
    KnownPath((f"{BASE}/in/u/b.txt",), UPLOAD, has_name=False),
)
SHOWN = {TMP: f"{ROOT}/tmp", THERE: ROOT, BASE: ROOT}


def removed(result: bytes, schema: object = None) -> bytes:
    """Returns a result as the engine shows it."""
    raw = None if schema is None else json.dumps(schema).encode()
    result = reword_result(result, KNOWN, CWD, FOLDERS, raw, CALLED)
    paths = SessionPaths(SHOWN, Reworder(KNOWN, CWD, FOLDERS, CALLED), ("/var/log/y.log",))
    return paths.removed(result, has_schema=raw is not None)


def shown(result: Any, schema: object = None) -> Any:
    return json.loads(removed(json.dumps(result).encode(), schema))


@each_row(
    ("result", "expected"),
    [
        ({"content": [{"type": "resource", "resource": {"uri": f"file://{CWD}/a.png"}}]}, SHOT),
        ({"content": [{"type": "resource", "resource": {"uri": f"file://{CWD}/b.png"}}]}, "file:///session/ws/b.png"),
        ({"content": [{"type": "resource_link", "uri": f"file://{TMP}/x y"}]}, "file:///session/tmp/x y"),
        ({"content": [{"type": "resource_link", "uri": f"demo://{CWD}/x"}]}, "demo:///session/ws/x"),
        ({"content": [{"type": "resource_link", "name": f"{CWD}/a.png"}]}, "a.png"),
        ({"content": [{"type": "resource_link", "title": f"{BASE}/out/x"}]}, "../out/x"),
        ({"content": [{"type": "resource_link", "name": "/var/log/y.log"}]}, LOG),
        ({"content": [{"type": "resource_link", "description": f"made at {CWD}/a.png"}]}, f"made at {SHOT}"),
        ({"content": [{"type": "text", "_meta": {"at": f"{CWD}/sub/x"}}]}, "sub/x"),
        ({"content": [{"type": "image", "annotations": {"by": [f"{TMP}/p"]}}]}, "tmp/p"),
        ({"_meta": {"acme": f"{BASE}/in/u/b.txt"}}, UPLOAD),
        ({"acme": f"see /var/log/y.log and {CWD}"}, f"see {LOG} and ."),
        ({"content": [{"type": "text", "text": f"https://h/?at={CWD}/x&y"}]}, "https://h/?at=/session/ws/x&y"),
        ({"content": [{"type": "text", "text": f"host:{CWD}/x x{CWD}/y"}]}, "host:./x x/session/ws/y"),
        ({"content": [{"type": "text", "text": f"~/workspaces/{ID}/ws"}]}, "/session/ws"),
        ({"content": [{"type": "text", "text": f"in /srv//isthmus/workspaces/{ID}"}]}, "in /session"),
        ({"_meta": [f"q/?at=%2fsrv%2fisthmus%2fworkspaces%2f{ID}%2fws"]}, "q/?at=%2fsession%2fws"),
        ({"content": [{"type": "text", "text": f"q/%2Fdata%2F%C3%BC%20b%2F{ID}%2Fx"}]}, "q/%2Fsession%2Fx"),
        ({"structuredContent": {"x": f"https://h{CWD}/x"}}, "https://h/session/ws/x"),
    ],
)  # fmt: skip
def test_each_place_has_its_own_way(result: Any, expected: str) -> None:
    def last(value: Any) -> Any:
        return (
            last(list(value.values() if isinstance(value, dict) else value)[-1]) if value is not str(value) else value
        )

    assert last(shown(result)) == expected


@each_row("value", [{f"{CWD}/sub/x": 1, "sub/x": 2}, [{f"{CWD}/x": [f"{CWD}/y", f"z{CWD}"]}, f"{CWD}/y"]])
def test_a_text_that_repeats_the_structured_content_stays_equal_to_it(value: Any) -> None:
    made = shown({"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value})
    assert json.loads(made["content"][0]["text"]) == made["structuredContent"]
    assert ID not in json.dumps(made)


def test_what_only_a_schema_keeps_is_left_and_so_is_its_copy() -> None:
    value = {"p": f"{CWD}/x", "n": f"{CWD}/y"}
    content = [{"type": "text", "text": json.dumps(value)}, {"type": "text", "text": f"q{CWD}"}]
    made = shown({"content": content, "structuredContent": value}, {"properties": {"p": {"pattern": "^/srv/(a|b)*"}}})
    assert made["structuredContent"] == {"p": f"{CWD}/x", "n": "y"}
    assert json.loads(made["content"][0]["text"]) == made["structuredContent"]
    assert made["content"][1]["text"] == "q/session/ws"


def test_no_path_is_left_where_the_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_rewriter, "WORK_MAX", 20_000)
    made = shown({"content": [{"type": "text", "text": f"{CWD}/x y" * 500}], "structuredContent": [f"{CWD}/x"] * 500})
    assert ID not in json.dumps(made)
    assert made["content"][0]["text"].endswith("/session/ws/x y")


@each_row(
    "result",
    [
        f'{{"content":[],"content":[{{"type":"text","text":"{CWD}/x"}}]}}',
        f'{{"content":{{"type":"text","text":"{CWD}/x","text":"{CWD}/y"}},"_meta":"{CWD}"}}',
        f'["{CWD}/x",{{"{CWD}/y":"\\ud800{CWD}"}}]',
        f'"{CWD}"',
    ],
)
def test_a_result_of_any_shape_is_searched(result: str) -> None:
    made = removed(result.encode())
    assert ID.encode() not in made
    json.loads(made)


# --- Any result -------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
SPELLINGS = [
    CWD, f"{CWD}/a.png", f"file://{CWD}/a.png", f"{BASE}/out/r.pdf", f"{BASE}/in/u/b.txt", TMP, f"{TMP}/c",
    f"{THERE}/ws", BASE, f"{BASE}/", f"..{BASE}/ws", f"//{ID}", f"file:{BASE}/ws/%41",
    CWD.replace("/", "\\/"), CWD.replace("/", "%2F"),
]  # fmt: skip
AROUND = [
    "",
    "saved to ",
    "(",
    "`",
    '"',
    "https://h",
    "x",
    "=",
    "\n",
    "\\n",
    "[a](",
    "é",
    "{",
    "a.png",
    ".",
    ")",
    "/z",
    ": ",
]
PLAIN = st.sampled_from(
    ["", "done", "b.txt", "x/y", "https://h/a", "é\ud800", '"', "\\", "{", "/srv/isthmus", "/etc/passwd"]
)
PATHS = st.builds("".join, st.tuples(st.sampled_from(AROUND), st.sampled_from(SPELLINGS), st.sampled_from(AROUND)))
TEXTS = PATHS | PLAIN
KEYS = (
    st.sampled_from(["uri", "name", "title", "text", "data", "blob", "type", "_meta", "description", "x"])
    | PATHS
    | PLAIN
)
VALUES = st.recursive(
    TEXTS | st.sampled_from([True, None, 0, 1.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
BLOCKS = st.builds(
    lambda kind, more, held: {"type": kind, **more, **({"resource": held} if kind == "resource" else {})},
    st.sampled_from(["text", "image", "audio", "resource", "resource_link", "acme"]),
    st.dictionaries(
        st.sampled_from(["text", "uri", "name", "title", "_meta", "annotations", "data"]), VALUES, max_size=4
    ),
    st.dictionaries(st.sampled_from(["uri", "text", "blob", "name", "_meta"]), TEXTS, max_size=3),
)
RESULTS = st.fixed_dictionaries(
    {},
    optional={
        "content": st.lists(BLOCKS, max_size=3),
        "structuredContent": st.dictionaries(KEYS, VALUES, max_size=3),
        "_meta": st.dictionaries(KEYS, VALUES, max_size=2),
        "isError": st.booleans(),
        "acme": VALUES,
    },
)


def touches(token: bytes) -> bool:
    """True if a string names a known file or a folder of the session in any way."""
    text = json.loads(token)
    return ID in text or "a.png" in text


@given(result=RESULTS, is_ascii=st.booleans(), indent=st.sampled_from([None, 1]))
@example({"content": [{"type": "text", "text": f"{CWD}"}], "structuredContent": {CWD: {CWD: CWD}}}, True, None)
def test_no_path_is_left_and_everything_else_stays(result: Any, is_ascii: bool, indent: int | None) -> None:
    before = json.dumps(result, ensure_ascii=is_ascii, indent=indent).encode(errors="surrogatepass")
    before = before.replace(b"\xed\xa0\x80", b"\\ud800")
    after = removed(before)
    assert ID.encode() not in after
    assert _TOKEN.sub(b'""', after) == _TOKEN.sub(b'""', before)
    for old, new in zip(_TOKEN.findall(before), _TOKEN.findall(after), strict=True):
        assert old == new or touches(old)
    json.loads(after)
    assert removed(after) == after
