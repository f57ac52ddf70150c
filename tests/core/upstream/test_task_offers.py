"""Tests of the task offers: the tasks extension is left out of capabilities, and a call names its tool."""

from __future__ import annotations

import pytest
from isthmus.core.base.ids import ChannelId
from isthmus.core.state.exchange import Exchange, ExchangeKey, Reply
from isthmus.core.state.stream import Stream
from isthmus.core.upstream.task_offers import tool_of, without_extension

TASKS = b'"io.modelcontextprotocol/tasks":{}'


@pytest.mark.parametrize(
    ("capabilities", "shown"),
    [
        (b"{}", b"{}"),
        (b'{"extensions":5}', b'{"extensions":5}'),
        (b'{"extensions":{}}', b'{"extensions":{}}'),
        (b'{"extensions":{"a/b":{}}, "tools":{}}', b'{"extensions":{"a/b":{}}, "tools":{}}'),
        (b'{"extensions":{' + TASKS + b"}}", b"{}"),
        (b'{"tools":{},"extensions":{' + TASKS + b',"a/b":{"c":1}}}', b'{"tools":{},"extensions":{"a/b":{"c":1}}}'),
        (b'{"extensions":{"a/b":{},' + TASKS + b'},"tools":{}}', b'{"extensions":{"a/b":{}},"tools":{}}'),
    ],
)
def test_the_extension_alone_is_left_out(capabilities: bytes, shown: bytes) -> None:
    """All other declarations stay as they were written. An `extensions` object that held nothing else goes too."""
    assert without_extension(capabilities) == shown


@pytest.mark.parametrize(
    ("params", "tool"),
    [
        (b'{"name":"a"}', "a"),
        (b'{"name":""}', ""),
        (b'{"name":5}', ""),
        (b"{}", ""),
        (b"[]", ""),
        (None, ""),
        (b'{"name":"a","name":"b"}', ""),
    ],
)
def test_an_unreadable_tool_name_is_empty(params: bytes | None, tool: str) -> None:
    reply = Reply(Stream(None), ends_channel=True, can_stream=False)
    exchange = Exchange(
        ExchangeKey(ChannelId(1), 0),
        reply,
        sid="s",
        id_raw=b"1",
        id_key=("n", 1),
        method="tools/call",
        params=params,
        token_raw=None,
    )
    assert tool_of(exchange) == tool
