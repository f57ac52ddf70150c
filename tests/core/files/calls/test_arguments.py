"""Tests of handles in arguments: they are found, checked and replaced, and nothing else in the params changes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.base.plan import Deliver, UploadConsumer
from isthmus.core.files.calls.arguments import (
    REFERENCES_MAX,
    ArgumentProblem,
    deliveries,
    embedded,
    find_references,
    form,
    place_output,
    requested_filename,
    tool_named,
)
from isthmus.core.files.store.handles import format_artifact, format_upload
from isthmus.core.jsonrpc.splice import splice

IDS = st.binary(min_size=16, max_size=16).map(bytes.hex)
SID, UID = "a" * 32, "b" * 32
HANDLE = format_upload(SID, UID)
ARTIFACT = format_artifact(SID, "c" * 32, "r é.png")


def consumer(path: str | tuple[str, ...], **more: object) -> UploadConsumer:
    return UploadConsumer(tools=("t",), file_path_argument=path, **more)  # type: ignore[arg-type]


def delivered(params: bytes, path: str | tuple[str, ...], **more: object) -> bytes:
    used = consumer(path, **more)
    found = find_references(params, (used,), how="call h")
    return splice(
        params,
        deliveries([(one, form(one.deliver, f"/up/{n}/é a.txt")) for n, one in enumerate(found)]),
    )


@pytest.mark.parametrize(
    ("path", "arguments", "expected"),
    [
        ("path", {"path": HANDLE}, {"path": "/up/0/é a.txt"}),
        ("path", {"path": HANDLE + "/x.txt"}, {"path": "/up/0/é a.txt"}),
        ("paths", {"paths": [HANDLE, HANDLE]}, {"paths": ["/up/0/é a.txt", "/up/1/é a.txt"]}),
        ("paths", {"paths": []}, {"paths": []}),
        ("o.file", {"o": {"file": HANDLE, "x": 1}}, {"o": {"file": "/up/0/é a.txt", "x": 1}}),
        ("fs[*].p", {"fs": [{"p": HANDLE}, {}]}, {"fs": [{"p": "/up/0/é a.txt"}, {}]}),
        ("path", {}, {}),
        ("path", {"path": None}, {"path": None}),
        ("o.file", {"o": None}, {"o": None}),
        ("o.file", {"other": "x"}, {"other": "x"}),
    ],
)
def test_handles_become_paths(path: str, arguments: object, expected: object) -> None:
    params = json.dumps({"name": "t", "arguments": arguments}).encode()
    assert json.loads(delivered(params, path)) == {"name": "t", "arguments": expected}


@pytest.mark.parametrize("params", [b'{"name":"t"}', b'{"name":"t","arguments":null}'])
def test_a_call_without_arguments_passes(params: bytes) -> None:
    assert delivered(params, "path") == params


def test_a_uri_is_percent_encoded() -> None:
    params = b'{"arguments":{"p":"%b"}}' % HANDLE.encode()
    assert json.loads(delivered(params, "p", deliver=Deliver.FILE_URI)) == {
        "arguments": {"p": "file:///up/0/%C3%A9%20a.txt"}
    }


def test_another_scheme_can_be_configured() -> None:
    params = b'{"arguments":{"p":"%b"}}' % format_upload(SID, UID, "staged://").encode()
    assert b"/up/0/" in delivered(params, "p", uri_scheme="staged://")


def test_artifacts_are_taken_everywhere() -> None:
    params = json.dumps({"arguments": {"p": [HANDLE, ARTIFACT]}}).encode()
    upload, artifact = find_references(params, (consumer("p"),), how="call h")
    assert (upload.kind, upload.uid, upload.label) == ("upload", UID, "p[0]")
    assert (artifact.kind, artifact.uid, artifact.label) == ("artifact", "c" * 32, "p[1]")
    assert artifact.text == ARTIFACT
    assert artifact.sid == SID


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (Deliver.PATH, Deliver.FILE_URI),
        (Deliver.FILE_URI, Deliver.FILE_URI),
        (Deliver.URL, Deliver.URL),
        (Deliver.DATA_URI, Deliver.DATA_URI),
        (Deliver.TEXT, Deliver.TEXT),
    ],
)
def test_a_handle_written_as_a_file_uri_is_delivered_as_one(given: Deliver, wanted: Deliver) -> None:
    params = json.dumps({"arguments": {"p": [f"file://{HANDLE}", f"file://{ARTIFACT}", HANDLE]}}).encode()
    found = find_references(params, (consumer("p", deliver=given),), how="call h")
    assert [reference.deliver for reference in found] == [wanted, wanted, given]
    assert [reference.kind for reference in found] == ["upload", "artifact", "upload"]


def test_several_arguments_and_consumers_are_searched_and_each_place_is_found_once() -> None:
    params = json.dumps({"arguments": {"b": [HANDLE], "a": HANDLE, "c": ARTIFACT}}).encode()
    first = consumer(("a", "b", "b[*]"), deliver=Deliver.FILE_URI)
    second = consumer(("b[*]", "c"))
    found = find_references(params, (first, second), how="call h")
    assert [(reference.label, reference.deliver) for reference in found] == [
        ("b[0]", Deliver.FILE_URI),
        ("a", Deliver.FILE_URI),
        ("c", Deliver.PATH),
    ]
    put = splice(params, deliveries([(reference, reference.label) for reference in found]))
    assert json.loads(put) == {"arguments": {"b": ["b[0]"], "a": "a", "c": "c"}}


@pytest.mark.parametrize(
    "value",
    ["/etc/hostname", "https://h/x", "", 5, {}, {"a": [1]}, True, [], ["a", None, [HANDLE], 1.5], "x upload://sessions/",
     "file:///w/a.csv", "Upload://x", "\ud800"],
)  # fmt: skip
def test_other_values_may_be_let_through(value: object) -> None:
    params = json.dumps({"arguments": {"p": value, "o": value}}).encode()
    assert delivered(params, ("p", "o.file"), accept_other=True) == params


@pytest.mark.parametrize(
    "value",
    ["upload://", "upload://sessions/x/y", f"artifact://sessions/{SID}", ["a", "upload://x"], f"file://{HANDLE}/a/b",
     "staged://x", "upload://\ud800"],
)  # fmt: skip
def test_a_malformed_handle_is_refused_even_where_other_values_pass(value: object) -> None:
    params = json.dumps({"arguments": {"p": value}}).encode()
    with pytest.raises(ArgumentProblem, match="Argument p"):
        delivered(params, "p", accept_other=True, uri_scheme="staged://")


def test_handles_among_other_values_are_delivered() -> None:
    params = json.dumps({"arguments": {"p": ["https://h/x", HANDLE, 5, ARTIFACT]}}).encode()
    put = json.loads(delivered(params, "p", accept_other=True))["arguments"]["p"]
    assert put == ["https://h/x", "/up/0/é a.txt", 5, "/up/1/é a.txt"]
    with pytest.raises(ArgumentProblem, match=r"Argument p\[0\]"):
        delivered(params, "p")


def test_a_handle_where_an_object_belongs_is_refused_all_the_same() -> None:
    params = json.dumps({"arguments": {"o": HANDLE}}).encode()
    with pytest.raises(ArgumentProblem, match="cannot hold"):
        delivered(params, "o.file", accept_other=True)


def test_content_is_delivered_as_the_tool_takes_it() -> None:
    data = "é\n".encode()
    assert embedded(Deliver.TEXT, data, "text/csv", label="p") == "é\n"
    assert embedded(Deliver.BASE64, data, "text/csv", label="p") == "w6kK"
    assert embedded(Deliver.DATA_URI, data, "text/csv", label="p") == "data:text/csv;base64,w6kK"
    with pytest.raises(ArgumentProblem, match=r"^Argument a\.b: .* not UTF-8 \(byte 0xff at offset 1\)"):
        embedded(Deliver.TEXT, b"a\xff", "text/csv", label="a.b")
    for wrong in (lambda: embedded(Deliver.PATH, b"", "", label=""), lambda: form(Deliver.TEXT, "/x")):
        with pytest.raises(AssertionError):
            wrong()


@given(
    ids=st.lists(st.tuples(IDS, IDS), max_size=5),
    before=st.sampled_from([b"1.0", b'"\\ud800"', b"1e400", b'{"a":1,"a":2}', b'"\\u00e9"', b"[ ]"]),
    space=st.sampled_from([b"", b" ", b"\n\t "]),
)
def test_all_but_the_handles_keeps_its_bytes(ids: list[tuple[str, str]], before: bytes, space: bytes) -> None:
    """The handles are found in order, and replacing each by itself leaves the bytes as they were."""
    handles = [json.dumps(format_upload(sid, uid)).encode() for sid, uid in ids]
    listed = (b"," + space).join(handles)
    params = b'{"arguments":{"z":%b,%b"p":[%b%b%b]},"_meta":%b}' % (before, space, space, listed, space, before)
    found = find_references(params, (consumer("p"),), how="call h")
    assert [(reference.sid, reference.uid) for reference in found] == ids
    assert splice(params, deliveries([(reference, reference.text) for reference in found])) == params
    moved = splice(params, deliveries([(reference, "/x") for reference in found]))
    assert moved == params.replace(listed, (b"," + space).join([b'"/x"'] * len(ids)))


@pytest.mark.parametrize(
    ("arguments", "path", "named", "shown"),
    [
        (b'{"path":"/etc/hostname"}', "path", "Argument path:", "/etc/hostname"),
        (b'{"path":"https://h/x"}', "path", "Argument path:", "https://h/x"),
        (b'{"path":"upload://sessions/x/y"}', "path", "Argument path:", "upload://sessions/x/y"),
        (b'{"path":5}', "path", "Argument path:", "5"),
        (b'{"path":{}}', "path", "Argument path:", "{}"),
        (b'{"path":""}', "path", "Argument path:", '""'),
        (b'{"path":"\\ud800"}', "path", "Argument path:", "\\ud800"),
        (b'{"paths":["%b",null]}' % HANDLE.encode(), "paths", "Argument paths[1]:", "null"),
        (b'{"paths":[["%b"]]}' % HANDLE.encode(), "paths", "Argument paths[0]:", "[["[:1]),
        (b'{"o":"x"}', "o.file", "Argument o:", '"x"'),
        (b'{"o":"%b"}' % HANDLE.encode(), "o.file", "Argument o:", "upload://"),
        (b'{"fs":{"p":1}}', "fs[*].p", "Argument fs:", '{"p":1}'),
        (b'"x"', "path", "Argument arguments:", '"x"'),
    ],
)
def test_anything_else_is_named_shown_and_explained(arguments: bytes, path: str, named: str, shown: str) -> None:
    with pytest.raises(ArgumentProblem) as caught:
        find_references(b'{"arguments":%b}' % arguments, (consumer(path),), how="call files_get_upload_url")
    text = str(caught.value)
    assert text.startswith(named)
    assert shown in text
    assert "files_get_upload_url" in text


def test_two_values_for_one_argument_are_refused() -> None:
    params = b'{"arguments":{"path":"/etc/passwd","path":"%b"}}' % HANDLE.encode()
    with pytest.raises(ArgumentProblem, match="twice"):
        find_references(params, (consumer("path"),), how="call h")


def test_long_values_are_shown_in_part() -> None:
    with pytest.raises(ArgumentProblem) as caught:
        find_references(b'{"arguments":{"p":"%b"}}' % (b"x" * 100_000), (consumer("p"),), how="call h")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b'"' + b"x" * 78 + b'"', '"' + "x" * 78 + '"'),
        (b'"' + b"x" * 79 + b'"', '"' + "x" * 79 + "…"),
        (b'"' + "€".encode() * 78 + b'"', '"' + "€" * 78 + '"'),
        (b'"' + "\U0001f600".encode() * 200 + b'"', '"' + "\U0001f600" * 79 + "…"),
    ],
)
def test_a_value_is_shown_up_to_80_characters(value: bytes, shown: str) -> None:
    """An ellipsis stands for the rest."""
    with pytest.raises(ArgumentProblem) as caught:
        find_references(b'{"arguments":{"p":%b}}' % value, (consumer("p"),), how="call h")
    assert f" {shown}" in str(caught.value)
    assert f"{shown}…" not in str(caught.value)
    assert str(caught.value).isprintable()
    assert str(caught.value).count("…") == shown.count("…")
    assert "…Q" not in str(caught.value)


def test_the_number_of_handles_is_bounded() -> None:
    params = json.dumps({"arguments": {"p": [HANDLE] * REFERENCES_MAX}}).encode()
    assert len(find_references(params, (consumer("p"),), how="call h")) == REFERENCES_MAX
    params = json.dumps({"arguments": {"p": [HANDLE] * (REFERENCES_MAX + 1)}}).encode()
    with pytest.raises(ArgumentProblem, match=f"at most {REFERENCES_MAX}"):
        find_references(params, (consumer("p"),), how="call h")


@pytest.mark.parametrize(
    ("params", "argument", "expected"),
    [
        (b'{"arguments":{"f":"a.png","x":1.0}}', "f", b'{"arguments":{"f":"/o/b.png","x":1.0}}'),
        (b'{"arguments":{ "x":1.0}}', "f", b'{"arguments":{ "x":1.0,"f":"/o/b.png"}}'),
        (b'{"arguments":{}}', "f", b'{"arguments":{"f":"/o/b.png"}}'),
        (b'{"name":"t"}', "f", b'{"name":"t","arguments":{"f":"/o/b.png"}}'),
        (b'{"arguments":null}', "f", b'{"arguments":{"f":"/o/b.png"}}'),
        (b'{"arguments":{"o":{"k":"\\u0041"}}}', "o.f", b'{"arguments":{"o":{"k":"\\u0041","f":"/o/b.png"}}}'),
        (b"{}", "o.p.f", b'{"arguments":{"o":{"p":{"f":"/o/b.png"}}}}'),
    ],
)
def test_the_output_path_is_put_where_the_tool_reads_it(params: bytes, argument: str, expected: bytes) -> None:
    assert place_output(params, argument, "/o/b.png") == expected
    assert requested_filename(expected, argument) == "/o/b.png"


@pytest.mark.parametrize(
    "params", [b'{"arguments":5}', b'{"arguments":{"o":[]}}', b'{"arguments":{"o":{"f":1,"f":2}}}']
)
def test_an_output_path_is_not_forced_into_something_else(params: bytes) -> None:
    with pytest.raises(ArgumentProblem):
        place_output(params, "o.f", "/x")
    assert requested_filename(params, "o.f") is None


@pytest.mark.parametrize("params", [b"{}", b'{"arguments":{"f":5}}', b'{"arguments":{"f":null}}', b'{"arguments":[]}'])
def test_no_name_was_requested(params: bytes) -> None:
    assert requested_filename(params, "f") is None


@pytest.mark.parametrize(
    ("patterns", "name", "is_covered"),
    [
        (("a", "b"), "b", True),
        (("ab",), "a", False),
        (("browser_*",), "browser_file_upload", True),
        (("browser_*",), "Browser_x", False),
        (("*",), "", True),
        (("t?",), "t1", True),
        (("t[0-9]",), "tx", False),
        (("a[b]",), "a[b]", True),
        ((), "a", False),
    ],
)
def test_tools_are_named_by_name_or_pattern(patterns: tuple[str, ...], name: str, is_covered: bool) -> None:
    assert tool_named(patterns, name) is is_covered


PIECES = st.sampled_from(
    [b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"null", b" ", b"\xff", b"\x00", b"\\ud800", b'{"arguments":',
     b'"p":', b'"f":', HANDLE.encode(), ARTIFACT.encode(), b"file://", b"5"]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    params=st.lists(PIECES, max_size=24).map(b"".join)
    | st.lists(PIECES, max_size=12).map(lambda pieces: b'{"arguments":{"p":%b}}' % b"".join(pieces)),
    path=st.sampled_from(["p", "p[*]", "p.f", "p[*].f", "p[*][*]", "", "[*]"]),
    accept_other=st.booleans(),
)
def test_hostile_params_are_refused_in_one_way_only(params: bytes, path: str, accept_other: bool) -> None:
    """Accepted params that were JSON are JSON afterwards."""
    try:
        put = delivered(params, path, accept_other=accept_other)
    except ArgumentProblem:
        return
    if put != params:
        json.loads(put)


def test_other_values_do_not_hide_the_handles_behind_them() -> None:
    """The search goes on after list items of another form."""
    files: list[object] = ["plain", {"file": None}, {"file": "/etc/x"}, {"file": HANDLE}, 5, {"file": ARTIFACT}]
    params = json.dumps({"arguments": {"all": files}}).encode()
    put = json.loads(delivered(params, "all[*].file", accept_other=True))["arguments"]["all"]
    assert put == [*files[:3], {"file": "/up/0/é a.txt"}, 5, {"file": "/up/1/é a.txt"}]


@pytest.mark.parametrize("written", [HANDLE.replace("/", "\\/"), "\\u0075" + HANDLE[1:], f"file:\\/\\/{HANDLE}"])
def test_a_handle_is_found_however_its_letters_are_written(written: str) -> None:
    """The handle stands in a list of other values, which is searched only if it may contain one."""
    params = f'{{"arguments":{{"p":["x","{written}"]}}}}'.encode()
    (_, found) = json.loads(delivered(params, "p", accept_other=True))["arguments"]["p"]
    assert found in ("/up/0/é a.txt", "file:///up/0/%C3%A9%20a.txt")


def test_the_refusal_of_an_output_path_names_the_argument() -> None:
    with pytest.raises(ArgumentProblem, match=r"^Argument a\.b: got 7, expected an object\.$"):
        place_output(b'{"arguments":{"a":{"b":7}}}', "a.b.c", "/w/x")
    with pytest.raises(ArgumentProblem, match=r"^Argument a: got 7, expected an object\.$"):
        place_output(b'{"arguments":{"a":7}}', "a.b.c", "/w/x")
