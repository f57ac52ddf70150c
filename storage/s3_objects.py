"""Objects in S3: written whole, read in ranges, listed in order. Requests are made by the package obstore, which is
imported with the first `S3Objects`.

Its asynchronous calls need asyncio, so its blocking ones run in worker threads, of which there are at most
`REQUESTS_MAX`. No wait is unbounded: a request waits for a thread up to `QUEUE_TIMEOUT_S`, an attempt takes up to
`ATTEMPT_TIMEOUT_S`, and none begins after `RETRY_TIMEOUT_S`. A request that has begun is not cancelled.

Text of obstore's exceptions never becomes part of ours, because it has the server's URL and its whole answer.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, TypeVarTuple

from anyio import CapacityLimiter, move_on_after, to_thread

from .interface import StorageError, StorageFull
from .s3_location import S3Location

if TYPE_CHECKING:
    from obstore.store import S3Store

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

INSTALL: Final = "pip install 'isthmus[s3]'"
REQUESTS_MAX: Final = 16
"""Requests at once. Each has a connection and a thread, and holds a piece or a window of a blob in memory."""
QUEUE_TIMEOUT_S: Final = 60.0
"""Seconds for which a request waits until there are fewer. Only a server that does not answer makes it so long."""
CONNECT_TIMEOUT_S: Final = 5.0
ATTEMPT_TIMEOUT_S: Final = 30.0
"""Seconds of one attempt, the transfer included: 8 MiB in this time are 2.3 Mbit/s."""
RETRY_TIMEOUT_S: Final = 30.0
"""Seconds after which no further attempt begins. A busy S3 answers 503 for seconds, and a failover of a self-hosted
server takes less than that."""
RETRIES_MAX: Final = 6
_BACKOFF_MAX_S: Final = 5.0
LISTED_MAX: Final = 1000
"""Objects in one answer to a listing. S3 gives no more."""

_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,64})</Code>")
_STATUS: Final = re.compile(r"non-2xx status code: (\d{3})")
_FULL: Final = ("QuotaExceeded", "QuotaExceededException", "XMinioStorageFull", "507")
"""Answers of servers that have no room. AWS itself has no such limit."""
_CREDENTIALS: Final = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where the machine has a role"
_ADVICE: Final = {
    "NoSuchBucket": "create the bucket, or correct its name",
    "AccessDenied": "allow GetObject, PutObject, DeleteObject and ListBucket",
    "403": "allow GetObject, PutObject, DeleteObject and ListBucket",
    "InvalidAccessKeyId": "correct AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "correct AWS_SECRET_ACCESS_KEY",
    "RequestTimeTooSkewed": "set this machine's clock",
    "PermanentRedirect": "name the bucket's region",
    "AuthorizationHeaderMalformed": "name the bucket's region",
}


class Listed(NamedTuple):
    """An object of a listing.

    Attributes:
        modified_at_unix: when it was written, on the server's clock, which may leave out fractions of a second.
    """

    name: str
    modified_at_unix: float


class S3Objects:
    """The objects below a location. Names are relative to its prefix.

    Methods raise `StorageError`, and `StorageFull` where the server has no room. A failed `put` may have been carried
    out.

    Args:
        attempt_timeout_s: see `ATTEMPT_TIMEOUT_S`.
        retry_timeout_s: see `RETRY_TIMEOUT_S`.

    Raises:
        StorageError: obstore is not installed, or refuses the settings of the environment.
    """

    def __init__(
        self,
        location: S3Location,
        *,
        attempt_timeout_s: float = ATTEMPT_TIMEOUT_S,
        retry_timeout_s: float = RETRY_TIMEOUT_S,
    ) -> None:
        self.location = location
        self._store = _open(location, attempt_timeout_s, retry_timeout_s)
        self._turn = CapacityLimiter(REQUESTS_MAX)
        self._threads = CapacityLimiter(REQUESTS_MAX)

    def put_now(self, name: str, content: bytes | bytearray) -> None:
        """Writes an object, in one step. Blocks."""
        import obstore

        with _as_storage_errors():
            obstore.put(self._store, name, content, use_multipart=False)

    async def put(self, name: str, content: bytes) -> None:
        await self.run(self.put_now, name, content)

    async def get(self, name: str, start: int, stop: int) -> memoryview | None:
        """Returns an object's bytes `start:stop`, or those of them that there are; None if there is no such object.
        The object has a byte at `start`."""

        def get() -> memoryview:
            import obstore

            return memoryview(obstore.get_range(self._store, name, start=start, end=stop))

        return await self.run(_or_none, get)

    async def delete(self, names: Sequence[str]) -> None:
        """Removes objects, `LISTED_MAX` in a request. Those that do not exist are no error."""
        import obstore

        def delete() -> None:
            with _as_storage_errors():
                obstore.delete(self._store, names)

        if names:
            await self.run(delete)

    async def listing(self, folder: str) -> AsyncGenerator[Listed, None]:
        """Yields the objects in a folder, and in folders below it, ordered by name (as ASCII).

        Raises:
            StorageError: the server lists them in another order.
        """
        import obstore

        def begin() -> Iterator[Sequence[Any]]:
            with _as_storage_errors():
                return iter(obstore.list(self._store, folder, chunk_size=LISTED_MAX))

        def step(pages: Iterator[Sequence[Any]]) -> Sequence[Any]:
            with _as_storage_errors():
                return next(pages, ())

        pages, last = await self.run(begin), ""
        while page := await self.run(step, pages):
            for found in page:
                if found["path"] <= last:
                    raise StorageError("the object store lists objects in no order, which Isthmus relies on")
                last = found["path"]
                yield Listed(last, found["last_modified"].timestamp())

    async def clock(self, name: str) -> float:
        """Writes an empty object, and returns when the server says that it did, in seconds of its wall time."""

        def clock() -> float:
            import obstore

            self.put_now(name, b"")
            with _as_storage_errors():
                return obstore.head(self._store, name)["last_modified"].timestamp()

        return await self.run(clock)

    async def run(self, work: Callable[[*Ts], T], *args: *Ts) -> T:
        """Runs `work`, which blocks, in a worker thread."""
        borrower = object()
        with move_on_after(QUEUE_TIMEOUT_S) as waiting:
            await self._turn.acquire_on_behalf_of(borrower)
        if waiting.cancelled_caught:
            raise StorageError("the object store cannot be used: too many requests wait for it")
        try:
            return await to_thread.run_sync(work, *args, limiter=self._threads)
        finally:
            self._turn.release_on_behalf_of(borrower)


def _open(location: S3Location, attempt_timeout_s: float, retry_timeout_s: float) -> S3Store:
    try:
        from obstore.store import S3Store
    except ImportError:
        raise StorageError(f"blobs in S3 want a package that is not installed: {INSTALL}") from None
    endpoint = location.effective_endpoint()
    # Both names, since obstore prefers a variable of the environment for the second one to a setting for the first.
    settings = {} if endpoint is None else {"endpoint": endpoint, "aws_endpoint_url_s3": endpoint}
    if location.region is not None:
        settings["region"] = location.region
    with _as_storage_errors():
        return S3Store(
            location.bucket,
            prefix=location.prefix or None,
            client_options={
                "allow_http": endpoint is not None and endpoint.startswith("http://"),
                "connect_timeout": timedelta(seconds=min(CONNECT_TIMEOUT_S, attempt_timeout_s)),
                "timeout": timedelta(seconds=attempt_timeout_s),
            },
            retry_config={
                "max_retries": RETRIES_MAX,
                "retry_timeout": timedelta(seconds=retry_timeout_s),
                "backoff": {"max_backoff": timedelta(seconds=_BACKOFF_MAX_S)},
            },
            **settings,  # type: ignore[arg-type]
        )


def _or_none(get: Callable[[], T]) -> T | None:
    with _as_storage_errors():
        try:
            return get()
        except FileNotFoundError as error:
            # Other answers with status 404, such as those for a missing bucket, do not mean that there is no object.
            if "<Code>NoSuchKey</Code>" in str(error):
                return None
            raise


@contextmanager
def _as_storage_errors() -> Iterator[None]:
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        code, reason = _reason(str(error))
        kind = StorageFull if code in _FULL else StorageError
        raise kind(f"the object store cannot be used: {reason}") from None


def _reason(text: str) -> tuple[str, str]:
    """Returns the server's error code, if it gave one, and what went wrong, from the text of an exception."""
    if "169.254.169.254" in text or "169.254.170.2" in text:
        return "", f"it was asked without credentials: {_CREDENTIALS}"
    found = _CODE.search(text) or _STATUS.search(text)
    if found is not None:
        advice = _ADVICE.get(found[1])
        return found[1], f"it answers {found[1]}" + (f"; {advice}" if advice else "")
    if "kind: Connect" in text:
        return "", "there is no connection to it"
    if "kind: Timeout" in text or "TimedOut" in text:
        return "", "it did not answer in time"
    return "", "the request failed"
