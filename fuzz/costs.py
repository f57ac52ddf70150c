"""A peer repeats anything: what reading it costs grows with its length, and not faster.

The first byte says who reads, the second how many fragments are repeated. The fragments follow, a byte each: those
that are repeated, and those behind. The text is read at lengths of which one is four times the other. Accepted
outcomes: it is cheap at the greater length, or costs at most eight times as much there. Costs are seconds of CPU, the
least of several readings: the steps of compiled code, where most of the work is, cannot be counted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

from isthmus.app.disk.multipart import boundary_of
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.plan import NameFilter
from isthmus.core.base.revisions import LEGACY
from isthmus.core.bridge import errors, request_meta, results
from isthmus.core.files.calls import claims, file_arguments, mentions, paths_in_text, tool_hints
from isthmus.core.files.calls.arguments import ArgumentProblem
from isthmus.core.files.calls.path_rewriter import KnownPath, Reworder, reword_result, reword_text
from isthmus.core.files.calls.session_paths import SessionPaths
from isthmus.core.files.store.filenames import safe_filename
from isthmus.core.jsonrpc import append, envelope, equality, splice
from isthmus.core.jsonrpc.bounds import replace_lone_surrogates
from isthmus.core.state.listen_filter import ListenFilter, parse_filter
from isthmus.core.wire.headers import accepts, read_fields
from isthmus.core.wire.http import cors, failure, mcp_headers, param_headers, tus, url
from isthmus.core.wire.http.cookies import read_cookies
from isthmus.core.wire.http.ranges import parse_ranges
from isthmus.core.wire.http.upload import decode_name
from isthmus.core.wire.ndjson import LineReader
from isthmus.core.wire.sse import EventReader
from isthmus.core.wire.websocket import accept_upgrade
from isthmus.transports.base.port import UploadRefused

HEAD_BYTES: Final = 64 * 1024
"""The size of a head at its limit, and of the other texts that are read."""
CHEAP_S: Final = 0.02
"""CPU that 64 KiB may take in any case: 300 ns a byte. Work that grows with the square takes seconds."""
READINGS: Final = 5
GROWTH_MAX: Final = 8.0

FRAGMENTS: Final[tuple[bytes, ...]] = (
    *(bytes([each]) for each in b"\"\\{}[],:;=.*?-_+%/@&#<>()'`~| \t\r\n0aZ\0\xff"),
    *(b"\\\\", b'\\"', b"\\n", b"\\u0061", b"\\ud800", b"\\ud83d\\ude00", "é".encode(), "😀".encode()),
    *(b'"a":', b'"a":1,', b'{"a":', b"[[", b"]]", b"null", b"true", b"1.0", b"1e9", b'"",', b"{},", b"[],"),
    *(b"sessions/", b"upload://sessions/", b"artifact://", b"file:///", b"/tmp/", b"../", b"a.png", b"a/b.txt "),
    *(b"upload://sessions/" + 32 * b"a" + b"/" + 32 * b"b", b"select ", b"''", b"--", b"](", b"](/tmp/a b)"),
    *(b"data:", b"data: x\n", b"event: x\n", b"id: 1\n", b"retry: 1\n", b": \n", b"\n\n", b"\r\n"),
    *(b"q=0.1,", b"a;b=c", b"bytes=", b"0-1,", b"W/", b"*/*,", b"gzip,", b"=?base64?", b"%41", b"%", b'a="b";'),
    *(
        b'{"type":"text","text":"',
        b'"}',
        b'"uri":"',
        b'"name":"a",',
        b'"_meta":{',
        b'"io.modelcontextprotocol/',
        b"$ref",
    ),
)


def read_by_members(data: bytes) -> None:
    splice.members(data)


def read_frame(data: bytes) -> None:
    frame = envelope.decode(data)
    envelope.progress_token(frame.params)
    request_meta.revision_of(frame.params)


def read_call(data: bytes) -> None:
    mentions.find_mentions(b'{"name":"t","arguments":{"a":"%b"}}' % data, limit=100)
    mentions.find_mentions(b'{"name":"t","arguments":%b}' % data, limit=100)


def read_result(data: bytes) -> None:
    for result in (b'{"content":[{"type":"text","text":"%b"}]}' % data, b'{"structuredContent":%b}' % data):
        results.to_modern("tools/call", result, server_info=None)
        results.to_legacy("tools/call", result, client=OLD, server=NEW)
        reword_result(result, KNOWN, "/w/s", ("/w/s",), None)
    SESSION_PATHS.removed(json.dumps(data.decode(errors="replace")).encode())


def read_tools(data: bytes) -> None:
    result = b'{"tools":[{"name":"t","description":"%b","inputSchema":{}},%b]}' % (data, data)
    for read in (tool_hints.read_hints, param_headers.read_tools, results.wrapped_tools):
        tolerate(read, result)
    file_arguments.file_arguments(
        b'{"name":"%b","description":"%b","inputSchema":{"properties":{"a":{"description":"%b"},"%b":{},%b}}}'
        % ((data,) * 5)
    )


def read_stream(data: bytes) -> None:
    reader = EventReader(event_size_max_bytes=16 * HEAD_BYTES)
    for start in range(0, len(data), 4096):
        reader.receive_bytes(data[start : start + 4096])
    reader.receive_eof()


def read_lines(data: bytes) -> None:
    reader = LineReader(line_size_max_bytes=16 * HEAD_BYTES)
    for start in range(0, len(data), 4096):
        reader.receive_bytes(data[start : start + 4096])


def read_head(data: bytes) -> None:
    lines = data.replace(b"\n", b"")
    for name in (b"accept", b"cookie", b"origin", b"sec-websocket-extensions", b"sec-websocket-protocol"):
        tolerate(read_fields, ((name, lines),))
        tolerate(accept_upgrade, (*UPGRADE, (name, lines)))
        tolerate(cors.preflight_headers, ((b"access-control-request-headers", lines),), ("GET",))
    tolerate(read_cookies, ((b"set-cookie", lines),), host="a.example", is_secure=True, now_unix=1e9)
    tolerate(parse_ranges, b"bytes=" + lines, 1000)


def read_header_text(data: bytes) -> None:
    text = data.decode("latin-1")
    for read in (mcp_headers.decode_value, tus.read_metadata, tus.read_checksum, decode_name, url.parse_url):
        tolerate(read, text)
    tolerate(boundary_of, "multipart/form-data; " + text)
    accepts(text, "application/json")
    safe_filename(text, "f")


def read_text(data: bytes) -> None:
    text = data.decode(errors="replace")
    paths_in_text.mentions(text[: paths_in_text.TEXT_MAX_CHARS], ())
    paths_in_text.spellings(text)
    reword_text(text, KNOWN, "/w/s", ("/w/s",))
    ListenFilter(uris=frozenset(["file:///a"])).covers("notifications/resources/updated", text)
    NameFilter(include=("*a*b*", "[a-z]*"), exclude=("*.*.*.png",)).admits(text)


def read_values(data: bytes) -> None:
    claims.strings_of(data)
    equality.is_same(data, data + b" ")
    append.readable_members(data)
    parse_filter(b'{"notifications":{"resourceSubscriptions":%b}}' % data, names_max=1024)


def read_error(data: bytes) -> None:
    failure.is_about_session(data)
    frame = envelope.decode(b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"","data":"%b"}}' % data)
    if frame.error is not None:
        errors.to_legacy("tools/call", None, envelope.usable_error(frame.error))


OLD: Final = LEGACY["2024-11-05"]
NEW: Final = LEGACY["2025-11-25"]
KNOWN: Final = (
    KnownPath(("/w/s/out/a.png", "/w/s/a.png"), "artifact://sessions/1/2/a.png", has_name=True),
    KnownPath(("/tmp/a",), "artifact://sessions/1/3/a", has_name=True),
)
SESSION_PATHS: Final = SessionPaths({"/x/tmp": "/session"}, Reworder(KNOWN, "/w/s", ("/x/tmp",)))
UPGRADE: Final = (
    (b"upgrade", b"websocket"),
    (b"connection", b"Upgrade"),
    (b"sec-websocket-version", b"13"),
    (b"sec-websocket-key", b"AAAAAAAAAAAAAAAAAAAAAA=="),
)
READERS: Final[tuple[Callable[[bytes], object], ...]] = (
    read_by_members,
    splice.elements,
    read_frame,
    envelope.split_batch,
    replace_lone_surrogates,
    read_call,
    read_result,
    read_tools,
    read_stream,
    read_lines,
    read_head,
    read_header_text,
    read_text,
    read_values,
    read_error,
)


def tolerate(read: Callable[..., Any], *given: Any, **named: Any) -> None:
    """Reads what may be refused."""
    try:
        read(*given, **named)
    except (RemoteProtocolError, ArgumentProblem, UploadRefused, ValueError):
        pass


def cost_of(read: Callable[[bytes], object], text: bytes) -> float:
    """Returns the seconds of CPU that a reading takes."""
    begin = time.process_time()
    tolerate(read, text)
    return time.process_time() - begin


def text_of(repeated: bytes, end: bytes, size_bytes: int) -> bytes:
    return (repeated * (size_bytes // max(1, len(repeated))) + end)[:size_bytes] if repeated else end


def test_one_input(data: bytes) -> None:
    if len(data) < 3:
        return
    read = READERS[data[0] % len(READERS)]
    fragments = [FRAGMENTS[each % len(FRAGMENTS)] for each in data[2:12]]
    count = 1 + data[1] % len(fragments)
    repeated, end = b"".join(fragments[:count]), b"".join(fragments[count:])
    for size in (HEAD_BYTES, 4 * HEAD_BYTES):  # twice, for a longer text may be valid where a shorter one is not
        short, long = (text_of(repeated, end, each) for each in (size // 4, size))
        for _ in range(READINGS):
            long_s = cost_of(read, long)
            if long_s <= CHEAP_S or long_s <= GROWTH_MAX * cost_of(read, short):
                return
    name = getattr(read, "__name__", read)
    raise AssertionError(f"{name} takes {long_s:.1f} s for {size} bytes of {repeated!r}, then {end!r}")
