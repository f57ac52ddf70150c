"""Tests of uploads as forms and as single files: what is stored, what is refused, and that a refusal leaves nothing."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest
from hanging import no_hang
from hypothesis import example, given
from hypothesis import strategies as st
from isthmus.app.disk.blob_files import BlobFiles
from isthmus.app.disk.multipart import _QUOTED, _emptied
from isthmus.core.base.events import RawFile
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.storage import Receive, Serve, StoredFile, UploadManifest
from isthmus.storage.interface import BlobStat, StorageFull
from isthmus.storage.memory import MemoryBlobs
from isthmus.transports.base.port import FileService, UploadRefused

TYPE = "multipart/form-data; boundary=XyZ"


class FakeBlobs:
    """A dict of blobs that counts its steps, and fails or hangs at one of them."""

    def __init__(self, *, fail_at: int = -1, error: Exception | None = None, hang_at: int = -1) -> None:
        self.kept: dict[str, bytes] = {}
        self.open: set[str] = set()
        self.written: dict[str, int] = {}
        self.steps = 0
        self.hung = anyio.Event()
        self._fail_at, self._error, self._hang_at = fail_at, error, hang_at

    async def step(self) -> None:
        self.steps += 1
        if self.steps - 1 == self._hang_at:
            self.hung.set()
            await anyio.sleep_forever()
        if self.steps - 1 == self._fail_at and self._error is not None:
            raise self._error

    @asynccontextmanager
    async def create(self, key: str, *, size_max_bytes: int) -> AsyncGenerator[FakeWriter, None]:
        await self.step()
        assert key not in self.open
        self.open.add(key)
        try:
            yield FakeWriter(self, key)
        finally:
            self.open.discard(key)

    async def read(self, key: str, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        yield self.kept[key][start:stop]

    async def stat(self, key: str) -> BlobStat | None:
        raise NotImplementedError

    async def delete(self, key: str) -> bool:
        await anyio.lowlevel.checkpoint()  # a cancelled caller would not get past this
        return self.kept.pop(key, None) is not None

    async def keys(self) -> AsyncIterator[str]:
        for key in self.kept:
            yield key

    def path_for(self, key: str) -> str | None:
        raise NotImplementedError

    async def sweep(self) -> int:
        return 0

    async def aclose(self) -> None:
        pass


class FakeWriter:
    def __init__(self, blobs: FakeBlobs, key: str) -> None:
        self._blobs, self._key, self._content = blobs, key, bytearray()

    async def write(self, chunk: bytes) -> None:
        self._blobs.written[self._key] = self._blobs.written.get(self._key, 0) + len(chunk)
        await self._blobs.step()
        self._content += chunk

    async def commit(self) -> BlobStat:
        self._blobs.kept[self._key] = bytes(self._content)
        await self._blobs.step()  # done, but a cancelled caller does not learn of it
        return BlobStat(len(self._content), hashlib.sha256(self._content).hexdigest())


def part(name: str, content: bytes, *, filename: str | None = None, more: str = "") -> bytes:
    suffix = "" if filename is None else f'; filename="{filename}"'
    return f'--XyZ\r\nContent-Disposition: form-data; name="{name}"{suffix}\r\n{more}\r\n'.encode() + content + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--XyZ--\r\n"


def digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def order(count: int = 3, *, file: int = 1000, total: int = 2000, require_sha256: bool = False) -> Receive:
    return Receive(ChannelId(1), tuple(f"b/{i}" for i in range(count)), file, total, require_sha256)


async def chunks(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def take(
    pieces: list[bytes], blobs: FakeBlobs | MemoryBlobs | None = None, receive: Receive | None = None, type: str = TYPE
) -> tuple[UploadManifest | tuple[int, str], dict[str, bytes]]:
    """The outcome of an upload, and the stored blobs."""
    blobs = blobs or FakeBlobs()
    service: FileService = BlobFiles(blobs)
    outcome: UploadManifest | tuple[int, str]
    try:
        outcome = msgspec.json.decode(
            await service.take_in(receive or order(), type, chunks(*pieces)), type=UploadManifest
        )
    except UploadRefused as refusal:
        outcome = (refusal.status, refusal.code)
    kept = {key: b"".join([chunk async for chunk in blobs.read(key)]) async for key in blobs.keys()}  # noqa: SIM118
    return outcome, kept


@pytest.mark.anyio
async def test_files_are_stored_in_order_with_their_names_and_hashes() -> None:
    body = form(
        part("sha256", digest(b"one").upper() + b" "),
        part("file", b"one", filename="a b.txt", more="Content-Type: text/plain; charset=utf-8\r\n"),
        part("sha256", b"  "),
        part("file", b"", filename="файл.pdf"),
        part("sha256", digest(b"")),
    )
    outcome, kept = await take([body], MemoryBlobs())
    first = StoredFile("a b.txt", 3, digest(b"one").decode(), "text/plain", b"one")
    assert outcome == UploadManifest((first, StoredFile("файл.pdf", 0, digest(b"").decode())))
    assert kept == {"b/0": b"one", "b/1": b""}


@pytest.mark.anyio
async def test_blobs_are_given_out_by_range() -> None:
    blobs = MemoryBlobs()
    await take([form(part("file", b"0123456789", filename="d"))], blobs)
    served = Serve(ChannelId(2), "b/0", "d", "text/plain", 10, "")
    assert b"".join([chunk async for chunk in BlobFiles(blobs).give_out(served, 2, 5)]) == b"234"


FILE = part("file", b"x", filename="f")
REFUSED = {
    "other media type": ("application/json", b"{}", (415, "unsupported_media_type")),
    "no media type": ("", FILE, (415, "unsupported_media_type")),
    "no boundary": ("multipart/form-data", form(FILE), (400, "malformed")),
    "boundary with control characters": ('multipart/form-data; boundary="a\rb"', form(FILE), (400, "malformed")),
    "empty body": (TYPE, b"", (400, "malformed")),
    "other boundary": ("multipart/form-data; boundary=abc", form(FILE), (400, "malformed")),
    "preamble": (TYPE, b"hello\r\n" + form(FILE), (400, "malformed")),
    "cut in content": (TYPE, FILE, (400, "malformed")),
    "cut in headers": (TYPE, FILE[:20], (400, "malformed")),
    "no disposition": (TYPE, b"--XyZ\r\nContent-Type: a/b\r\n\r\nx\r\n--XyZ--\r\n", (400, "malformed")),
    "names not in UTF-8": (TYPE, form(FILE.replace(b'"f"', b'"\xff"')), (400, "malformed")),
    "bare line end in a header": (TYPE, form(FILE.replace(b'"f"', b'"f\ng"')), (400, "malformed")),
    "bare line end before a header": (TYPE, form(FILE.replace(b"XyZ\r\n", b"XyZ\r\n\n")), (400, "malformed")),
    "bare line end in a header's name": (TYPE, form(FILE.replace(b"Content", b"\rContent")), (400, "malformed")),
    "header too long": (TYPE, form(FILE.replace(b'"f"', b'"' + b"f" * 5000 + b'"')), (400, "malformed")),
    "base64": (TYPE, form(part("file", b"eA==", filename="f", more="Content-Transfer-Encoding: base64\r\n")),
               (400, "malformed")),
    "no parts": (TYPE, b"--XyZ--\r\n", (400, "no_file")),
    "hash only": (TYPE, form(part("sha256", digest(b"x"))), (400, "no_file")),
    "path in place of a file": (TYPE, form(part("file", b"/etc/hosts")), (400, "no_file")),
    "other field": (TYPE, form(FILE, part("name", b"x")), (400, "unknown_field")),
    "too many files": (TYPE, form(FILE, FILE, FILE, FILE), (400, "too_many_files")),
    "too few hashes": (TYPE, form(FILE, FILE, part("sha256", digest(b"x"))), (400, "sha256_count")),
    "too many hashes": (TYPE, form(FILE, *[part("sha256", digest(b"x"))] * 4), (400, "sha256_count")),
    "hash of another file": (TYPE, form(FILE, part("sha256", digest(b"y"))), (400, "sha256_mismatch")),
    "hash that is none": (TYPE, form(FILE, part("sha256", b"abc")), (400, "malformed")),
    "hash that does not end": (TYPE, form(FILE, part("sha256", b"a" * 500)), (400, "malformed")),
    "file too large": (TYPE, form(FILE, part("file", b"x" * 1001, filename="g")), (413, "file_too_large")),
    "files too large": (TYPE, form(*[part("file", b"x" * 700, filename="g")] * 3), (413, "request_too_large")),
    "epilogue without end": (TYPE, form(FILE) + b"x" * 200_000, (413, "request_too_large")),
    "blank fields without end": (TYPE, form(FILE, *[part("sha256", b"")] * 3000), (413, "request_too_large")),
}  # fmt: skip


@pytest.mark.anyio
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("cut", [1, 7, 64 * 1024])
async def test_a_refused_upload_leaves_nothing(name: str, cut: int) -> None:
    """Each error has its status and code, however the body is divided, and stores no file."""
    type, body, expected = REFUSED[name]
    outcome, kept = await take([body[i : i + cut] for i in range(0, len(body), cut)], type=type)
    assert (outcome, kept) == (expected, {})


@pytest.mark.anyio
@pytest.mark.parametrize("cut", range(12))
async def test_a_line_end_before_the_first_boundary_is_no_preamble(cut: int) -> None:
    body = b"\r\n" + form(FILE)
    outcome, kept = await take([body[:cut], body[cut:]])
    assert isinstance(outcome, UploadManifest) and kept == {"b/0": b"x"}


@pytest.mark.anyio
async def test_limits_are_met_exactly() -> None:
    """An upload of exactly the limits passes: 1000 bytes a file, 2000 in all."""
    full = part("file", b"x" * 1000, filename="f")
    outcome, kept = await take([form(full, full)])
    assert isinstance(outcome, UploadManifest) and len(kept) == 2
    assert (await take([form(full, full, FILE)]))[0] == (413, "request_too_large")


@pytest.mark.anyio
@pytest.mark.parametrize("given", [0, 1])
async def test_hashes_may_be_required(given: int) -> None:
    body = form(FILE, *[part("sha256", digest(b"x"))] * given)
    outcome, kept = await take([body], receive=order(require_sha256=True))
    assert (outcome == (400, "sha256_required"), len(kept)) == (not given, given)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("disposition", "filename"),
    [
        ('filename="a.txt"', "a.txt"),
        ("filename=a.txt", "a.txt"),
        ('filename="../../etc/passwd"', "../../etc/passwd"),
        ('filename="a%22b.txt"', 'a"b.txt'),
        ("filename=\"%D1%84.txt\"; filename*=utf-8''%D1%84.txt", "ф.txt"),
        ("filename*=UTF-8'en'%D1%84.txt", "ф.txt"),
        ("filename=\"a.txt\"; filename*=utf-8''%FF", "a.txt"),
        ("filename=\"a; filename*=utf-8''b\"", "a; filename*=utf-8''b"),
        ("filename=a; x=\"\\\"; filename*=utf-8''b", "b"),  # a quote without an end quotes nothing
    ],
)
async def test_filenames_are_taken_as_sent(disposition: str, filename: str) -> None:
    body = form(FILE.replace(b'filename="f"', disposition.encode()))
    outcome, _ = await take([body])
    assert isinstance(outcome, UploadManifest)
    assert outcome.files[0].filename == filename


def test_quotes_without_an_end_are_not_each_searched_for_one() -> None:
    text = 'form-data; name="' + 400_000 * '\\"'
    with no_hang():
        assert _QUOTED.sub(_emptied, text) == text


@pytest.mark.parametrize("cut", [1, 100, 4096])
@pytest.mark.parametrize("total", [1000, 100_000])
@pytest.mark.anyio
async def test_limits_apply_while_receiving(cut: int, total: int) -> None:
    """The body of a file that does not end is read for one chunk more than the limit, and written for none."""
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        yield FILE[:-2]
        while True:
            read += cut
            assert read < 100_000
            yield b"y" * cut

    blobs = FakeBlobs()
    with pytest.raises(UploadRefused) as refusal:
        await BlobFiles(blobs).take_in(order(file=5000, total=total), TYPE, endless())
    limit = min(total, 5000)
    assert refusal.value.status == 413
    assert blobs.written.get("b/0", 0) <= limit
    assert limit <= read + 1 <= limit + cut
    assert not blobs.kept and not blobs.open


BODIES = [
    form(FILE, part("sha256", digest(b"x"))),
    b"\r\n" + form(FILE),
    *(body for _, body, _ in REFUSED.values() if len(body) < 10_000),
]


FORM_WITH_A_BARE_LINE_END = form(FILE).replace(b"--XyZ\r\n", b"--XyZ\r\n\n", 1)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Forms of tricky contents, some of them damaged."""
    content = st.lists(st.sampled_from([b"\r", b"\n", b"--XyZ", b"\r\n--XyZ", b"\r\n--Xy", b"--", b"-", b"a", b"\xff"]))
    contents = draw(st.lists(content.map(b"".join), max_size=4))
    body = form(*[part("file", one, filename="f") for one in contents])
    if draw(st.booleans()):
        at = draw(st.integers(0, len(body)))
        body = (
            body[:at] + draw(st.sampled_from([b"", b"\r", b"\n", b"\r\n", b"x"])) + body[at + draw(st.integers(0, 2)) :]
        )
    return body


@example(FORM_WITH_A_BARE_LINE_END, [])
@example(form(FILE.replace(b"\r\n\r\n", b"\r\nX-" + b"a" * 4096 + b": " + b"a" * 4092 + b"\r\n\r\n")), [])
@given(body=bodies() | st.sampled_from(BODIES), cuts=st.lists(st.integers(0, 600), max_size=12))
def test_cutting_never_shows(body: bytes, cuts: list[int]) -> None:
    """The outcome depends on the body's bytes, not on how they are divided."""
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    pieces = [body[a:b] for a, b in itertools.pairwise(places)]
    whole = anyio.run(take, [body])
    assert anyio.run(take, pieces) == whole
    assert anyio.run(take, [body[i : i + 1] for i in range(len(body))]) == whole


TWO = [form(part("file", b"x" * 10, filename="f"), part("file", b"y" * 10, filename="g"))]
TWO_STEPS = 6  # create, write and commit of each file


@pytest.mark.anyio
async def test_the_steps_are_all_counted() -> None:
    blobs = FakeBlobs()
    outcome, kept = await take(TWO, blobs)
    assert isinstance(outcome, UploadManifest)
    assert (blobs.steps, len(kept)) == (TWO_STEPS, 2)


@pytest.mark.anyio
@pytest.mark.parametrize("step", range(TWO_STEPS))
@pytest.mark.parametrize("error", [StorageFull("full"), OSError("broken")])
async def test_a_failing_storage_leaves_nothing(step: int, error: Exception) -> None:
    """A full storage is reported as 507 at any step; every other failure is passed on."""
    blobs = FakeBlobs(fail_at=step, error=error)
    if isinstance(error, StorageFull):
        assert (await take(TWO, blobs))[0] == (507, "storage_full")
    else:
        with pytest.raises(OSError, match="broken"):
            await take(TWO, blobs)
    assert not blobs.kept and not blobs.open


@pytest.mark.anyio
@pytest.mark.parametrize("step", range(TWO_STEPS))
async def test_a_cancelled_upload_leaves_nothing(step: int) -> None:
    blobs = FakeBlobs(hang_at=step)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take, TWO, blobs)
            await blobs.hung.wait()
            tasks.cancel_scope.cancel()
    assert not blobs.kept and not blobs.open


@pytest.mark.anyio
@pytest.mark.parametrize("cut", range(0, len(TWO[0]), 9))
async def test_a_client_that_hangs_up_leaves_nothing(cut: int) -> None:
    """Any error that the body raises is passed on."""

    async def broken() -> AsyncIterator[bytes]:
        yield TWO[0][:cut]
        raise ConnectionResetError

    blobs = FakeBlobs()
    with pytest.raises(ConnectionResetError):
        await BlobFiles(blobs).take_in(order(), TYPE, broken())
    assert not blobs.kept and not blobs.open


@pytest.mark.anyio
async def test_a_file_that_cannot_be_removed_does_not_save_the_others() -> None:
    class Sticky(FakeBlobs):
        async def delete(self, key: str) -> bool:
            if key == "b/0":
                raise OSError("stuck")
            return await super().delete(key)

    blobs = Sticky()
    outcome, kept = await take([form(FILE, FILE, part("other", b""))], blobs)
    assert (outcome, set(kept)) == ((400, "unknown_field"), {"b/0"})


# --- One file without a form ------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("pieces", [[], [b"hel", b"lo"], [b"x" * 1000]])
async def test_a_body_that_is_the_file_is_stored_as_it_is(pieces: list[bytes]) -> None:
    content = b"".join(pieces)
    raw = RawFile("a.txt", "text/plain", digest(content).decode())
    outcome, kept = await take(pieces, None, msgspec.structs.replace(order(1), raw=raw), type="text/plain")
    assert outcome == UploadManifest((StoredFile("a.txt", len(content), raw.sha256, "text/plain", content[:512]),))
    assert kept == {"b/0": content}


@pytest.mark.anyio
@pytest.mark.parametrize(
    "raw, file, total, refusal",
    [
        (RawFile(sha256="0" * 64), 10, 10, (400, "sha256_mismatch")),
        (RawFile(), 4, 10, (413, "file_too_large")),
        (RawFile(), 10, 4, (413, "request_too_large")),
    ],
)
async def test_a_body_that_is_not_the_file_leaves_nothing(
    raw: RawFile, file: int, total: int, refusal: tuple[int, str]
) -> None:
    receive = msgspec.structs.replace(order(1, file=file, total=total), raw=raw)
    assert await take([b"he", b"llo"], None, receive) == (refusal, {})
