"""Tests of the name in a request: read as each server reads it, or refused."""

from __future__ import annotations

import pytest
from each_row import each_row
from isthmus.core.base.errors import INVALID_PARAMS, RemoteProtocolError
from isthmus.core.bridge.request_name import NAMED_BY, name_in


def escaped(key: str) -> str:
    return "".join(f"\\u{ord(each):04x}" for each in key)


@pytest.mark.parametrize(("method", "key"), NAMED_BY.items())
def test_a_name_is_read_however_it_is_written(method: str, key: str) -> None:
    for spelling in (key, escaped(key)):
        for value in ("delete", escaped("delete")):
            assert name_in(method, f'{{ "arguments" : {{}}, "{spelling}" : "{value}" }}'.encode()) == "delete"


@each_row(("method", "key"), NAMED_BY.items())
@each_row(
    "text",
    [
        '{"KEY":"a","KEY":"b"}',
        '{"KEY":"a","KEY":"a"}',
        '{"KEY":"a","ESCAPED":"b"}',
        '{"KEY":"a","UPPER":"b"}',
        '{"UPPER":"b"}',
        '{"KEY":["a"]}',
        '{"KEY":{"a":1}}',
        '{"KEY":7}',
        '{"KEY":null}',
        '{"KEY":"\\ud800"}',
        '["a"]',
        "{}",
    ],
)
def test_a_name_that_cannot_be_read_in_one_way_only_is_refused(method: str, key: str, text: str) -> None:
    params = text.replace("KEY", key).replace("ESCAPED", escaped(key)).replace("UPPER", key.upper())
    with pytest.raises(RemoteProtocolError) as caught:
        name_in(method, params.encode())
    assert caught.value.rpc_code == INVALID_PARAMS


def test_letters_that_some_servers_take_for_others_count() -> None:
    for odd in ("ta\u017fkId", "tas\u212aId"):
        with pytest.raises(RemoteProtocolError):
            name_in("tasks/get", f'{{"taskId":"a","{odd}":"b"}}'.encode())


@pytest.mark.parametrize(
    "reference",
    [
        '{"type":"ref/prompt"}',
        '{"type":"ref/prompt","name":"a","name":"b"}',
        '{"type":"ref/prompt","type":"ref/resource","name":"a","uri":"b"}',
        '{"type":"ref/other","name":"a"}',
        '{"name":"a"}',
        '"a"',
    ],
)
def test_a_reference_that_cannot_be_read_is_refused(reference: str) -> None:
    with pytest.raises(RemoteProtocolError):
        name_in("completion/complete", f'{{"ref":{reference}}}'.encode())


def test_other_methods_name_nothing() -> None:
    assert name_in("tools/list", b'{"name":"a","name":"b"}') is None
    assert name_in("ping", None) is None
