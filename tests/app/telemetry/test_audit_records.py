"""Tests of the records of the audit log: what is read of a request, and that nobody can forge a line."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.app.base.tags import tag_of
from isthmus.app.telemetry.audit_file import BEGINNING
from isthmus.app.telemetry.audit_records import (
    ARGUMENTS_MAX,
    ARGUMENTS_MAX_BYTES,
    READ_MAX_BYTES,
    TEXT_MAX_CHARS,
    NoteRecord,
    RequestRecord,
    Said,
    encode,
    read_params,
    without_secrets,
)


def record(**members: Any) -> RequestRecord:
    made: dict[str, Any] = {"time": "t", "event": "request", "id": "1", "principal": "p", "server": "a"}
    return RequestRecord(**{**made, "method": "tools/call", **members})


def said(method: str, params: object, arguments: Any = "keys") -> Said:
    return read_params(method, json.dumps(params).encode(), arguments)


@given(text=st.text(), names=st.lists(st.text()))
def test_text_of_a_peer_stays_on_its_line(text: str, names: list[str]) -> None:
    sizes = dict.fromkeys(names, 1)
    line = encode(record(target=text, client=text, argument_bytes=sizes)).decode()
    assert line.startswith(BEGINNING.decode())
    assert line.endswith("\n")
    assert line[:-1].isprintable()  # also for readers that end lines at U+2028
    found = json.loads(line)
    assert found.get("target", "") == found.get("client", "") == text
    assert found.get("argument_bytes", {}) == sizes


def test_a_path_with_a_lone_surrogate_has_a_record() -> None:
    note = NoteRecord(time="t", event="note", id="1", principal="", level="info", text="\ud800\n")
    assert json.loads(encode(note))["text"] == "\ud800\n"


def test_what_is_read_of_each_method() -> None:
    assert said("tools/call", {"name": "t", "arguments": {"a": "xy", "b": {"c": 1}}}) == Said(
        target="t", argument_bytes={"a": 4, "b": 8}
    )
    reference = {"type": "ref/resource", "uri": "file:///x?key=1"}
    completion = {"ref": reference, "argument": {"name": "path", "value": "abc"}}
    assert said("completion/complete", completion) == Said(target="file:///x", argument_bytes={"path": 5})
    assert said("tasks/result", {"taskId": "a.0123456789"}) == Said(task="a.012345")
    meta = {"io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"}, "traceparent": "no trace"}
    assert said("prompts/get", {"name": "p", "_meta": meta}) == Said(target="p", client="c 1")
    assert said("custom/method", {"name": "p"}) == Said()


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{", b'{"name":1,"arguments":[],"_meta":7}', b'{"name":"\\ud800"}', b"\xff"]
)
def test_params_that_cannot_be_read_leave_the_record(raw: bytes) -> None:
    for method in ("tools/call", "completion/complete", "tasks/get"):
        assert read_params(method, raw, "full") == Said()


def test_one_wrong_member_hides_no_other() -> None:
    params = {"name": "t", "arguments": {"a": 1}, "_meta": {"traceparent": 5, "io.modelcontextprotocol/clientInfo": 0}}
    assert said("tools/call", params) == Said(target="t", argument_bytes={"a": 1})


def test_the_values_of_arguments_are_on_one_line() -> None:
    raw = b'{"name":"t","arguments":{\n "a": [1,\n\n 2], "b": "\\n{\\"event\\":\\"forged\\"}"\n}}'
    found = read_params("tools/call", raw, "full")
    line = encode(record(arguments=found.arguments))
    assert line.count(b"\n") == 1
    assert json.loads(line)["arguments"] == {"a": [1, 2], "b": '\n{"event":"forged"}'}
    assert read_params("tools/call", raw, "never") == Said(target="t")


def test_arguments_are_bounded() -> None:
    many = said("tools/call", {"name": "t", "arguments": {f"a{i}": i for i in range(ARGUMENTS_MAX + 3)}})
    assert (len(many.argument_bytes), many.arguments_more) == (ARGUMENTS_MAX, 3)
    for size, is_there in ((ARGUMENTS_MAX_BYTES - 8, True), (ARGUMENTS_MAX_BYTES - 7, False)):
        found = said("tools/call", {"arguments": {"a": "x" * size}}, "full")
        assert (found.arguments is not None) == is_there
        assert bool(found.argument_bytes) != is_there
    for size, is_there in ((READ_MAX_BYTES - 40, True), (READ_MAX_BYTES, False)):
        assert bool(said("tools/call", {"arguments": {"a": "x" * size}}).argument_bytes) == is_there


def test_names_are_bounded() -> None:
    found = said("tools/call", {"name": "t" * 1000, "arguments": {"k" * 1000: 1}})
    assert (found.target, list(found.argument_bytes)) == ("t" * 80, ["k" * 80])
    assert len(without_secrets("x:" + "y" * 1000)) == TEXT_MAX_CHARS


def test_secrets_of_names_are_left_out() -> None:
    assert without_secrets("https://u:p@h:1/a@b?sig=1#f") == "https://h:1/a@b"
    assert without_secrets("artifact://x#sig?y") == "artifact://x"
    assert tag_of("0123456789") == "012345"
    assert tag_of("a.0123456789") == "a.012345"


def test_a_record_names_what_it_has() -> None:
    names = msgspec.json.decode(encode(record())).keys()
    assert list(names) == ["time", "event", "id", "principal", "server", "method"]
