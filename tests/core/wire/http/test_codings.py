"""Tests of bodies with content codings: the same text however they were cut, and one error for all that is wrong."""

from __future__ import annotations

import gzip
import zlib
from contextlib import suppress
from itertools import pairwise
from typing import Final

import brotli
import pytest
from coded_bodies import PACKERS, Flushing, deflate_raw, pack_br, pack_gzip, pack_zstd, zstd
from hypothesis import example, given
from hypothesis import strategies as st
from isthmus.core.base.budget import UNCOUNTED_MAX_BYTES, Budget, Share
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.limits import MIB, Limits
from isthmus.core.wire.http.codings import (
    ANY_RATIO_MAX_BYTES,
    CODINGS_MAX,
    SLICE_BYTES,
    BodyDecoder,
    codings_for,
    describe_unread,
    without_codings,
)
from isthmus.transports.base.decompressors import BR_WINDOW_MAX_BYTES, ZSTD_WINDOW_BITS_MAX, added_coding

TEXT: Final = b'{"jsonrpc":"2.0","id":7,"result":{"tools":[%b]}}' % b",".join(b'{"name":"t%d"}' % i for i in range(300))
LIMITS: Final = Limits()


def decoder(coding: str, limits: Limits = LIMITS, share: Share | None = None) -> BodyDecoder:
    found = codings_for(((b"content-encoding", coding.encode()),), added_coding)
    assert found, coding
    return BodyDecoder(found, limits, share)


def slices(made: BodyDecoder, *pieces: bytes) -> list[bytes]:
    out = []
    for piece in pieces:
        out.append(made.decode(piece))
        while made.is_behind:
            out.append(made.decode(b""))
    return out


def decode(coding: str, *pieces: bytes, limits: Limits = LIMITS) -> bytes:
    made = decoder(coding, limits)
    text = b"".join(slices(made, *pieces))
    made.finish()
    return text


def cut(body: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(body) + 1) for place in places} | {0, len(body)})
    return [body[start:end] for start, end in pairwise(ends)] or [b""]


@pytest.mark.parametrize("kind", PACKERS)
@given(text=st.one_of(st.binary(max_size=300), st.just(TEXT)), places=st.lists(st.integers(0, 5000), max_size=8))
def test_cutting_never_shows(kind: str, text: bytes, places: list[int]) -> None:
    coding, pack = PACKERS[kind]
    assert decode(coding, *cut(pack(text), places)) == text


@pytest.mark.parametrize("kind", PACKERS)
def test_a_body_may_come_byte_by_byte_with_empty_pieces(kind: str) -> None:
    coding, pack = PACKERS[kind]
    body = pack(TEXT)
    assert decode(coding, b"", *(body[i : i + 1] for i in range(len(body))), b"") == TEXT


@pytest.mark.parametrize("kind", PACKERS)
def test_a_body_without_a_byte_holds_nothing(kind: str) -> None:
    assert decode(PACKERS[kind][0]) == decode(PACKERS[kind][0], b"") == b""


@pytest.mark.parametrize("kind", PACKERS)
def test_a_body_that_is_cut_off_is_an_error_wherever_the_cut_is(kind: str) -> None:
    coding, pack = PACKERS[kind]
    body = pack(TEXT[:100])
    for size in range(1, len(body)):
        with pytest.raises(RemoteProtocolError, match="cut off, expected all of it"):
            decode(coding, body[:size])


@pytest.mark.parametrize("kind", PACKERS)
@given(body=st.binary(min_size=1, max_size=200), places=st.lists(st.integers(0, 200), max_size=3))
@example(body=b"\x1f\x8b\x08", places=[1])
@example(body=b"\x78\x9c\xff\xff", places=[])
@example(body=b"\x28\xb5\x2f\xfd\xff\xff", places=[2])
def test_garbage_raises_the_one_error_or_nothing(kind: str, body: bytes, places: list[int]) -> None:
    with suppress(RemoteProtocolError):
        decode(PACKERS[kind][0], *cut(body, places))


@pytest.mark.parametrize("kind", PACKERS)
@given(at=st.integers(0, 10_000), flip=st.integers(1, 255), places=st.lists(st.integers(0, 2000), max_size=3))
def test_a_changed_byte_raises_the_one_error_or_nothing(kind: str, at: int, flip: int, places: list[int]) -> None:
    coding, pack = PACKERS[kind]
    body = bytearray(pack(TEXT))
    body[at % len(body)] ^= flip
    with suppress(RemoteProtocolError):
        decode(coding, *cut(bytes(body), places))


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_wrong_checksum_is_an_error(coding: str) -> None:
    body = bytearray(PACKERS["gzip" if coding == "gzip" else "zlib"][1](TEXT))
    body[-5 if coding == "gzip" else -1] ^= 1
    with pytest.raises(RemoteProtocolError, match=f"got a body that is not {coding}, expected what its Content-Enc"):
        decode(coding, bytes(body))


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
@given(places=st.lists(st.integers(0, 200), max_size=6))
def test_several_streams_in_a_row_are_one_body(kind: str, places: list[int]) -> None:
    coding, pack = PACKERS[kind]
    assert decode(coding, *cut(pack(b"one ") + pack(b"") + pack(b"two"), places)) == b"one two"


@pytest.mark.parametrize("kind", ["gzip", "zlib", "raw"])
@pytest.mark.parametrize("tail", [b"\0", b"\0" * 500, b"garbage", b"\x1f", b"\x1f\x8b", b"\x1f\x8b\x07"])
def test_what_follows_gzip_and_deflate_is_ignored(kind: str, tail: bytes) -> None:
    coding, pack = PACKERS[kind]
    body = pack(TEXT)
    for pieces in ([body + tail], [body, tail], [body, *(tail[i : i + 1] for i in range(len(tail)))]):
        assert decode(coding, *pieces) == TEXT


@pytest.mark.parametrize("kind", ["br", "zstd"])
def test_what_follows_br_and_zstd_is_an_error(kind: str) -> None:
    coding, pack = PACKERS[kind]
    for pieces in ([pack(TEXT) + b"garbage"], [pack(TEXT), b"garbage"]):
        with pytest.raises(RemoteProtocolError, match=f"got a body that is not {coding}"):
            decode(coding, *pieces)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_an_event_comes_out_as_soon_as_it_is_in(coding: str) -> None:
    server, made = Flushing(coding), decoder(coding)
    for number in range(5):
        event = b"data: %d\n\n" % number
        assert b"".join(slices(made, server.pack(event))) == event
    slices(made, server.finish())
    made.finish()


# --- Bounds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PACKERS)
def test_a_slice_is_decoded_at_a_time(kind: str) -> None:
    coding, pack = PACKERS[kind]
    size_bytes = 8 * SLICE_BYTES
    found = slices(decoder(coding), pack(b"x" * size_bytes))
    assert sum(map(len, found)) == size_bytes
    assert max(map(len, found)) <= 2 * SLICE_BYTES
    assert len(found) >= 4


def test_streams_without_content_take_a_slice_each() -> None:
    """Thousands of them fit into one read, and each costs as much as a short text."""
    assert len(slices(decoder("gzip"), pack_gzip(b"") * 100)) == 100


@pytest.mark.parametrize("kind", ["gzip", "br", "zstd", "twice"])
def test_a_large_body_may_hold_so_many_times_its_size(kind: str) -> None:
    coding, pack = PACKERS[kind]
    allowed = pack(b"x" * ANY_RATIO_MAX_BYTES)
    assert len(decode(coding, allowed)) == ANY_RATIO_MAX_BYTES
    times = f"expected {LIMITS.reply_ratio_max} times"
    with pytest.raises(RemoteProtocolError, match=rf"got a body in \w+ with \d+ bytes in \d+, {times}"):
        decode(coding, pack(b"x" * (ANY_RATIO_MAX_BYTES + 2 * SLICE_BYTES)))


def test_the_ratio_is_that_of_all_bytes_received() -> None:
    """A long text passes whose bytes are worth it, though its end alone is not."""
    body = gzip.compress(bytes(range(256)) * 400 + b"x" * ANY_RATIO_MAX_BYTES, compresslevel=1)
    assert len(decode("gzip", body, limits=Limits(reply_ratio_max=1000))) == 256 * 400 + ANY_RATIO_MAX_BYTES
    with pytest.raises(RemoteProtocolError):
        decode("gzip", body, limits=Limits(reply_ratio_max=20))


@pytest.mark.parametrize("tail", ["garbage", "empty members"])
def test_bytes_that_hold_nothing_are_read_up_to_the_limit_of_a_reply(tail: str) -> None:
    limits = Limits(reply_size_max_bytes=1000)
    made, filler = decoder("gzip", limits), b"\0" * 20 if tail == "garbage" else pack_gzip(b"")
    slices(made, pack_gzip(b""))
    slices(made, filler * 48)
    with pytest.raises(RemoteProtocolError, match=r"got a body in gzip with 10\d\d bytes more than it holds"):
        slices(made, filler * 3)


@pytest.mark.parametrize("coding", ["br", "zstd"])
def test_what_a_decompressor_keeps_counts_as_arriving(coding: str) -> None:
    budget = Budget(limit=MIB, owner_limit=MIB)
    server, made = Flushing(coding), decoder(coding, share=Share(budget, "a"))
    slices(made, server.pack(b"x" * UNCOUNTED_MAX_BYTES))
    assert budget.used == 0
    slices(made, server.pack(b"x" * SLICE_BYTES))
    assert budget.used == UNCOUNTED_MAX_BYTES + SLICE_BYTES
    with pytest.raises(RemoteProtocolError, match=f"got a body in {coding}, for which others that arrive leave no roo"):
        slices(made, server.pack(b"x" * MIB))
    made.release()
    assert budget.used == 0


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_small_window_is_not_counted(coding: str) -> None:
    budget = Budget(limit=0, owner_limit=0)
    slices(decoder(coding, share=Share(budget, "a")), Flushing(coding).pack(TEXT * 100))
    assert budget.used == 0


def test_no_frame_of_zstd_may_want_a_larger_window() -> None:
    text = bytes(range(256)) * (1 << 9)

    def pack(window_bits: int) -> bytes:
        packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: window_bits})
        return packer.compress(text) + packer.flush()  # without the size of the text in its head

    assert decode("zstd", pack(ZSTD_WINDOW_BITS_MAX)) == text
    with pytest.raises(RemoteProtocolError, match="not zstd"):
        decode("zstd", pack(ZSTD_WINDOW_BITS_MAX + 1))


def test_the_largest_window_of_br_is_read_and_counted() -> None:
    assert decode("br", brotli.compress(TEXT, lgwin=24)) == TEXT
    budget = Budget(limit=2 * BR_WINDOW_MAX_BYTES, owner_limit=2 * BR_WINDOW_MAX_BYTES)
    made = decoder("br", Limits(reply_ratio_max=10**9), Share(budget, "a"))
    slices(made, pack_br(b"x" * (BR_WINDOW_MAX_BYTES + MIB)))
    assert budget.used == BR_WINDOW_MAX_BYTES


# --- Heads ----------------------------------------------------------------------------------------------------------


def test_a_body_has_two_codings_at_most() -> None:
    for count in range(1, CODINGS_MAX + 2):
        headers = ((b"content-encoding", b", ".join([b"gzip"] * count)),)
        found = codings_for(headers, added_coding)
        assert [name for name, _ in found] == (["gzip"] * count if count <= CODINGS_MAX else [])
        assert ("2 codings at most" in describe_unread(headers)) is (count > CODINGS_MAX)


@pytest.mark.parametrize("given_coding", [b"compress", b"gzip, compress", b"utf-8", b"", b"identity"])
def test_an_unknown_coding_or_none_is_not_decoded(given_coding: bytes) -> None:
    assert codings_for(((b"content-encoding", given_coding),), added_coding) == []


def test_without_their_packages_br_and_zstd_are_not_decoded() -> None:
    for coding in (b"br", b"zstd", b"gzip, br"):
        assert codings_for(((b"content-encoding", coding),), lambda name: None) == []


def test_the_head_of_the_decoded_body_names_neither_coding_nor_length() -> None:
    headers = ((b"content-type", b"a/b"), (b"content-encoding", b"gzip"), (b"content-length", b"5"), (b"x", b"y"))
    assert without_codings(headers) == ((b"content-type", b"a/b"), (b"x", b"y"))
    empty = ((b"content-encoding", b"gzip"), (b"content-length", b"0"))
    assert without_codings(empty) == ((b"content-length", b"0"),)


def test_deflate_is_told_by_its_first_two_bytes() -> None:
    for level in range(10):
        packer = zlib.compressobj(level, wbits=-15)
        assert decode("deflate", packer.compress(TEXT) + packer.flush()) == TEXT
        assert decode("deflate", zlib.compress(TEXT, level)) == TEXT
    assert decode("deflate", deflate_raw(b"")) == decode("deflate", zlib.compress(b"")) == b""
    assert pack_br(b"") and pack_zstd(b"")
