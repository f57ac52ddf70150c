"""Any bytes arrive, cut in any way: the lines are the bytes split at LF, within the limit, and each can be sent on.

The first byte sets the limit, the rest is the stream. Accepted outcomes: `Line` and `Oversize`.
"""

from __future__ import annotations

from isthmus.core.wire.ndjson import Line, LineReader, Oversize, encode_line


def events(chunks: list[bytes], limit: int) -> list[Line | Oversize]:
    reader = LineReader(line_size_max_bytes=limit)
    arrived: list[Line | Oversize] = []
    for chunk in chunks:
        arrived += reader.receive_bytes(chunk)
    return [*arrived, *reader.receive_eof()]


def test_one_input(data: bytes) -> None:
    limit, stream = 1 + (data[0] if data else 0), data[1:]
    whole = events([stream], limit)
    middle = len(stream) // 2
    assert events([stream[:middle], stream[middle:]], limit) == whole
    assert events([stream[i : i + 1] for i in range(len(stream))], limit) == whole
    assert len(whole) <= stream.count(b"\n") + 1
    for event in whole:
        match event:
            case Line(line):
                assert line.strip()
                assert b"\n" not in line
                assert len(line) <= limit
                again = events([b"\n", encode_line(line)], limit + 1)
                assert again == [Line(line.removesuffix(b"\r").replace(b"\r", b" ") + b" " * line.endswith(b"\r"))]
            case Oversize(head, size_bytes):
                assert len(head) <= limit < size_bytes
