"""Storage orders of the engine, and the answers that a driver returns for them.

A blob is the stored content of one file, and a record a small value under a key. A workspace is the set of folders of
one session; a server reads and writes files there. Sizes are in bytes, times in seconds since 1970.
"""

from __future__ import annotations

import enum

import msgspec

from .effects import Effect
from .events import Checksum, RawFile
from .ids import ChannelId, Ticket

# --- Storage orders: answered by `receive_answer(ticket, answer)` ----------------------------------------------------


class Load(Effect, frozen=True):
    """Reads the record `key`. Answer: `Loaded`."""

    ticket: Ticket
    key: str


class Save(Effect, frozen=True):
    """Writes the record `key` durably, expiring at `expires_at_unix` (None: never). Answer: `Saved`.

    With `if_version` it is written only over that version of the record; 0 stands for no record. Otherwise the answer
    is `Conflicted`.
    """

    ticket: Ticket
    key: str
    value: bytes
    expires_at_unix: float | None = None
    if_version: int | None = None


class Forget(Effect, frozen=True):
    """Removes a record. No answer."""

    key: str


class ForgetAll(Effect, frozen=True):
    """Removes all records whose keys start with `prefix`. No answer."""

    prefix: str


class Allocate(Effect, frozen=True):
    """Makes the folders in which an upstream may write a file: `folders` below the workspace's `area` ("out" or "ws"),
    each in the one before. With an empty `filename` the last of them is what it may write into. Answer: `Allocated`."""

    ticket: Ticket
    workspace: str
    folders: tuple[str, ...]
    filename: str
    area: str = "out"


class FileSource(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A file that an upstream says it wrote: `candidates` are spellings of one path, and the first that exists is
    meant.

    Relative candidates are resolved against the server's working directory. With a `stamp` (see `SeenFile`) the file
    must be unchanged since it was seen, both before and after it is copied; otherwise its problem is "unfinished".
    """

    candidates: tuple[str, ...]
    stamp: str = ""


class InlineSource(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A file whose content was embedded in a message. `data` is the decoded content."""

    data: bytes
    filename: str
    mime_type: str | None = None


Source = FileSource | InlineSource


class Survey(Effect, frozen=True):
    """Looks at files without changing anything.

    `named` holds paths (each as several spellings, as in `FileSource`); `areas` names folders of the workspace ("ws",
    "in", "out"), of which at most `entries_max` files in all are listed. A named folder stands for the files below it,
    at most `folder_max`. Files that may not be taken in are not reported. Answer: `Surveyed`, with one `Sighting` for
    each of `named`.
    """

    ticket: Ticket
    server: str
    workspace: str
    named: tuple[tuple[str, ...], ...] = ()
    areas: tuple[str, ...] = ()
    entries_max: int = 10_000
    folder_max: int = 64


class Collect(Effect, frozen=True):
    """Takes files in: copies each source that is an existing file under the workspace or the server's `artifact_roots`
    (symlinks resolved) into blob `blobs[i]`.

    No file may have more than `size_max_bytes`, and all of them together no more than `total_size_max_bytes`.
    `workspace` is "" if all sources are inline. Answer: `Collected`, one entry for each source.
    """

    ticket: Ticket
    server: str
    workspace: str
    sources: tuple[Source, ...]
    blobs: tuple[str, ...]
    size_max_bytes: int
    total_size_max_bytes: int


class Extend(Effect, frozen=True):
    """Adds `data` to the draft `blob`, which has `offset` bytes; at offset 0 the draft is created if it does not exist.
    With `is_last` the draft becomes the blob. Answer: `Extended`. After a failure, `Discard` removes what there is."""

    ticket: Ticket
    blob: str
    offset: int
    data: bytes
    is_last: bool = False


class Materialize(Effect, frozen=True):
    """Makes a stored blob visible to an upstream: as a file named `filename` in a folder of its own, named after the
    upload or artifact, below the workspace's `folder` ("in", "out" or "ws"). Answer: `Materialized`."""

    ticket: Ticket
    workspace: str
    blob: str
    upload: str
    filename: str
    folder: str = "in"


class Fetch(Effect, frozen=True):
    """Reads a whole blob into memory, at most `size_max_bytes`. Answer: `Fetched`."""

    ticket: Ticket
    blob: str
    size_max_bytes: int


class Discard(Effect, frozen=True):
    """Removes a blob. No answer."""

    blob: str


class Remove(Effect, frozen=True):
    """Removes the file at the real path `path`, which was taken in and whose record is saved. The file stays if it has
    changed since it had `stamp`, or lies where files may not be taken in. No answer."""

    server: str
    workspace: str
    path: str
    stamp: str


class Sweep(Effect, frozen=True):
    """Removes a workspace with all its folders. No answer."""

    workspace: str


class Receive(Effect, frozen=True):
    """Takes in the body of an upload: stores its files as blobs named `blobs[0]`, `blobs[1]`, … in order, all or none.
    With `raw` the body is the file `blobs[0]`.

    When they are stored, the driver calls `receive_message(channel, manifest)` with the JSON of an `UploadManifest`.
    When that fails, the driver answers the client itself with the `UploadRefusal`'s status and calls `receive_close`.
    """

    channel: ChannelId
    blobs: tuple[str, ...]
    file_size_max_bytes: int
    total_size_max_bytes: int
    require_sha256: bool = False
    raw: RawFile | None = None


class Append(Effect, frozen=True):
    """Takes in the body of a request as the next bytes of the draft `blob` (a resumable upload), from `offset` on. At
    offset 0 the draft is created if it does not exist.

    Received bytes are kept even if the rest of the body does not arrive, unless there is a `checksum`: then all of the
    body is kept, or none. When the draft has `size_bytes`, it becomes the blob; it is discarded instead if its digest
    is not `sha256`.

    At the end the driver calls `receive_message(channel, report)` with the JSON of an `Appended`; earlier reports may
    tell the progress. Where the client broke off, the driver answers it as far as it can, after the report. A channel
    that closes without a report means that nothing was begun.
    """

    channel: ChannelId
    blob: str
    offset: int
    size_bytes: int
    checksum: Checksum | None = None
    sha256: str = ""


class Cease(Effect, frozen=True):
    """Stops receiving the body that an `Append` is for. The `Append` is over then; its channel is still to be
    answered."""

    channel: ChannelId


class Serve(Effect, frozen=True):
    """Answers a download with a blob. `stored_at_unix` is 0 if it is not known."""

    channel: ChannelId
    blob: str
    filename: str
    mime_type: str
    size_bytes: int
    sha256: str
    stored_at_unix: float = 0.0


StorageOrder = (
    Load
    | Save
    | Forget
    | ForgetAll
    | Allocate
    | Survey
    | Collect
    | Extend
    | Materialize
    | Fetch
    | Discard
    | Remove
    | Sweep
)
"""Orders for storage alone. `Receive`, `Append` and `Serve` are orders for a channel that also use the storage."""


class StoredFile(msgspec.Struct, frozen=True):
    """One file of an upload, as stored. `sha256` is in lower-case hexadecimal."""

    filename: str
    """The name that the client gave; not yet made safe."""
    size_bytes: int
    sha256: str
    mime_type: str | None = None
    head: bytes = b""
    """The first 512 bytes, from which the type is told."""


class UploadManifest(msgspec.Struct, frozen=True):
    """The files of one upload request, in order; the i-th lies in blob `Receive.blobs[i]`."""

    files: tuple[StoredFile, ...]


class Halt(enum.Enum):
    """The reason why an `Append` stored less than its whole body."""

    NONE = ""
    CEASED = "ceased"  # ended by `Cease`
    BROKEN = "broken"  # the client hung up, was silent for too long, or sent no HTTP
    CHECKSUM = "checksum"  # the body's digest is not that of `checksum`: nothing of the body is kept
    TOO_LARGE = "too_large"  # the body exceeds the size of the file: nothing of the body is kept
    MISMATCH = "mismatch"  # the SHA-256 of the whole file is wrong: the draft is discarded
    FULL = "full"  # no room is left; the bytes stored before are kept
    FAILED = "failed"  # the storage failed, and the size of the draft is not known


class Appended(msgspec.Struct, frozen=True, omit_defaults=True):
    """A report on a draft.

    Attributes:
        size_bytes: bytes that the draft has.
        is_over: nothing more of this body follows.
        sha256: digest of the whole file: it is complete, and a blob now; "" before.
        head: the part of the draft's first 512 bytes that this body brought.
    """

    size_bytes: int
    is_over: bool = True
    sha256: str = ""
    halt: Halt = Halt.NONE
    head: bytes = b""


# --- Storage answers ------------------------------------------------------------------------------------------------


class Answer(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Base class of the answers to storage orders."""


class Loaded(Answer, frozen=True):
    """The answer to `Load`. `value` is None, and `version` 0, if there is no such record."""

    value: bytes | None = None
    version: int = 0


class Saved(Answer, frozen=True):
    """The answer to `Save`: the record is stored durably, as `version`, which is greater than 0."""

    version: int = 0


class Conflicted(Answer, frozen=True):
    """The answer to a `Save` with `if_version` where the record has another version. Nothing has changed. Of several
    such orders over one version, in any processes that share the storage, one is answered with `Saved`."""


class Allocated(Answer, frozen=True):
    """The answer to `Allocate`: the absolute path of the file, or of the folder."""

    path: str


class SeenFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A regular file that may be taken in.

    Attributes:
        path: absolute, all links resolved.
        stamp: identifies the content: another stamp means that the file was written since, or is another file.
        changed_at_unix: last write or rename, on the wall clock.
        is_busy: another process has it open for writing, as far as that can be seen.
    """

    path: str
    size_bytes: int
    stamp: str
    changed_at_unix: float = 0.0
    is_busy: bool = False


class Sighting(msgspec.Struct, frozen=True, omit_defaults=True):
    """The finding at a named path.

    Attributes:
        problem: the reason why there is nothing to take, for people: "missing", "not permitted", "an empty folder"; ""
            if there is a file.
        files: the file, or those of the folder, in order of their paths.
        is_folder: the path is a folder.
        is_cut: the folder has more files than are listed.
        left: the file or folder that is there and may not be taken, if it is the proxy's own user's and not private.
    """

    problem: str = ""
    files: tuple[SeenFile, ...] = ()
    is_folder: bool = False
    is_cut: bool = False
    left: SeenFile | None = None


class Surveyed(Answer, frozen=True):
    """The answer to `Survey`. `named` has a finding for each named path. `listed` are the files of the areas, ordered
    by their paths; `is_cut` if there are more."""

    named: tuple[Sighting, ...] = ()
    listed: tuple[SeenFile, ...] = ()
    is_cut: bool = False


class CollectedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """One source of a `Collect`, taken in if `problem` is empty. `path` is the real path it came from ("" for inline
    content)."""

    problem: str = ""
    path: str = ""
    filename: str = ""
    size_bytes: int = 0
    sha256: str = ""
    head: bytes = b""
    """The first 512 bytes, from which the type is told."""


class Collected(Answer, frozen=True):
    """The answer to `Collect`, with one entry for each source."""

    files: tuple[CollectedFile, ...]


class Extended(Answer, frozen=True, omit_defaults=True):
    """The answer to `Extend`: the draft has `size_bytes`. `sha256` is the digest of the whole file once it is a blob;
    "" before."""

    size_bytes: int
    sha256: str = ""


class Materialized(Answer, frozen=True):
    """The answer to `Materialize`: the absolute path of the file, and its `stamp` as in `SeenFile`."""

    path: str
    stamp: str = ""


class Fetched(Answer, frozen=True):
    """The answer to `Fetch`: the content of the blob."""

    data: bytes


class StorageFailed(Answer, frozen=True):
    """The answer to an order that could not be carried out: `reason` for people. `is_full` when space or a quota was
    the reason, and `is_missing` when the record, blob or file does not exist."""

    reason: str
    is_full: bool = False
    is_missing: bool = False


StorageAnswer = (
    Loaded | Saved | Conflicted | Allocated | Surveyed | Collected | Extended | Materialized | Fetched | StorageFailed
)
