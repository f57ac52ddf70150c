"""Moves a large file through a running proxy, in and out in each way, and checks that memory does not grow with its
size.

`make big` moves 2 GiB; `--size 64Mi` less. Uploads are generated as they are sent, downloads are hashed and dropped.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import random
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "app"))

from command import Run
from file_caller import BODY, TOOLBOX, TUS, Caller
from isthmus.app.base.sizes import parse_size

MIB: Final = 1024 * 1024
GROWTH_MAX_BYTES: Final = 32 * MIB
"""The memory that the proxy may take in addition. It holds a few chunks of 64 KiB to 1 MiB."""
LOOK_EVERY_S: Final = 0.02
PATIENCE_S: Final = 120.0
"""The limit for one read or write on a socket. A disk may have to write gigabytes meanwhile."""

_BLOCK: Final = random.Random(4711).randbytes(MIB)


class Content:
    """A file that is never held whole: each of its megabytes begins with its own number."""

    def __init__(self, size: int) -> None:
        self.size = size

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        while start < stop:
            number, at = divmod(start, MIB)
            piece = (number.to_bytes(8, "big") + _BLOCK[8:])[at : at + stop - start]
            start += len(piece)
            yield piece

    def sha256(self) -> str:
        digest = hashlib.sha256()
        for piece in self.read(0, self.size):
            digest.update(piece)
        return digest.hexdigest()


class Memory:
    """The memory of a process, measured again and again in a thread."""

    def __init__(self, pid: int) -> None:
        self._path = Path(f"/proc/{pid}/status")
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.before = self.most = self._look()

    def _look(self) -> int:
        matched = re.search(r"^VmRSS:\s+(\d+) kB$", self._path.read_text(), re.MULTILINE)
        assert matched is not None
        return int(matched[1]) * 1024

    def _watch(self) -> None:
        while not self._end.wait(LOOK_EVERY_S):
            self.most = max(self.most, self._look())

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()

    @property
    def growth(self) -> int:
        return self.most - self.before


@contextmanager
def serving(size: int) -> Iterator[tuple[str, int]]:
    """Runs a proxy that takes such files, and hands its tool a link to each. Yields its address and its process."""
    adapter = {"type": "upload_consumer", "tools": ["echo"], "file_path_argument": "text", "deliver": "url"}
    upstream = {"command": [sys.executable, TOOLBOX, "a"]}
    with tempfile.TemporaryDirectory() as folder:
        config = {
            "core": {"port": 0},
            "storage": {"root": str(Path(folder) / "data"), "max_size": 3 * size},
            "sessions": {"max_total_session_size": 2 * size},
            "uploads": {"max_file_bytes": size},
            "servers": [{"id": "a", "upstream": upstream, "adapters": [adapter]}],
        }
        path = Path(folder) / "isthmus.json"
        path.write_text(json.dumps(config))
        with Run("serve", str(path)) as run:
            url = urlsplit(run.wait_line(r"(http://[\w.:\[\]]+/mcp\S*)")[1])
            yield f"{url.scheme}://{url.netloc}", run.pid


# --- In ---------------------------------------------------------------------------------------------------------------


def send(url: str, method: str, headers: dict[str, str], body: Iterator[bytes], size: int) -> http.client.HTTPResponse:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    connection.request(method, f"{parts.path}?{parts.query}", body, {**headers, "Content-Length": str(size)})
    response = connection.getresponse()
    text = response.read()
    assert response.status < 300, (response.status, text)
    response.text = text  # type: ignore[attr-defined]
    connection.close()
    return response


def post(caller: Caller, content: Content, sha256: str) -> str:
    begin = (
        b'--XyZ\r\nContent-Disposition: form-data; name="sha256"\r\n\r\n' + sha256.encode() + b"\r\n--XyZ\r\n"
        b'Content-Disposition: form-data; name="file"; filename="big.bin"\r\n\r\n'
    )
    end = b"\r\n--XyZ--\r\n"

    def form() -> Iterator[bytes]:
        yield begin
        yield from content.read(0, content.size)
        yield end

    headers = {"Content-Type": "multipart/form-data; boundary=XyZ"}
    response = send(caller.link(), "POST", headers, form(), len(begin) + content.size + len(end))
    return str(json.loads(response.text)["upload_handle"])  # type: ignore[attr-defined]


def put(caller: Caller, content: Content, sha256: str) -> str:
    headers = {"X-Filename": "big.bin", "X-Content-SHA256": sha256}
    response = send(caller.link(), "PUT", headers, content.read(0, content.size), content.size)
    return str(json.loads(response.text)["upload_handle"])  # type: ignore[attr-defined]


def tus(caller: Caller, content: Content, sha256: str) -> str:
    """Uploads in parts, one of which breaks off in its middle."""
    headers = {**TUS, "Upload-Length": str(content.size)}
    url = caller.fetch("POST", caller.link(), headers).headers["location"]
    part = max(1, content.size // 7)
    cut = 3
    offset = 0
    while offset < content.size:
        size = min(part, content.size - offset)
        headers = {**BODY, "Upload-Offset": str(offset)}
        cut -= 1
        if cut == 0:
            with caller.plug("PATCH", url, {**headers, "Content-Length": str(size)}) as plug:
                plug.settimeout(PATIENCE_S)
                for piece in content.read(offset, offset + size // 2):
                    plug.sendall(piece)
            seen = caller.fetch("HEAD", url, TUS)
            assert "upload-offset" in seen.headers, (seen, caller.fetch("GET", url))
            offset = int(seen.headers["upload-offset"])
            continue
        response = send(url, "PATCH", headers, content.read(offset, offset + size), size)
        offset += size
        assert response.getheader("Upload-Offset") == str(offset)
    shown = caller.fetch("GET", url).json
    assert shown["upload"]["sha256"] == sha256
    return str(shown["upload_handle"])


WAYS_IN: Final = {"POST": post, "PUT": put, "tus": tus}

# --- Out --------------------------------------------------------------------------------------------------------------


def get(url: str, **headers: str) -> Iterator[bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    connection.request("GET", f"{parts.path}?{parts.query}", headers=headers)
    response = connection.getresponse()
    assert response.status == (206 if headers else 200), response.status
    while piece := response.read(MIB):
        yield piece
    connection.close()


def hash_whole(url: str, size: int) -> str:
    digest = hashlib.sha256()
    for piece in get(url):
        digest.update(piece)
    return digest.hexdigest()


def hash_ranges(url: str, size: int) -> str:
    """Downloads ranges one after another, each in a request of its own."""
    digest = hashlib.sha256()
    step = max(1, size // 5)
    for start in range(0, size, step):
        for piece in get(url, Range=f"bytes={start}-{min(start + step, size) - 1}"):
            digest.update(piece)
    return digest.hexdigest()


def check_parts(url: str, content: Content) -> None:
    """Downloads three large ranges in one response."""
    third, width = content.size // 3, content.size // 4
    wanted = [(start, start + width) for start in (0, third, 2 * third)]
    header = "bytes=" + ",".join(f"{start}-{stop - 1}" for start, stop in wanted)
    sizes = {start: hashlib.sha256() for start, _ in wanted}
    for start, stop in wanted:
        for piece in content.read(start, stop):
            sizes[start].update(piece)
    buffer = bytearray()
    pieces = get(url, Range=header)

    def fill(size: int) -> None:
        while len(buffer) < size:
            buffer.extend(next(pieces))

    for start, stop in wanted:
        while (end := buffer.find(b"\r\n\r\n")) < 0:
            fill(len(buffer) + 1)
        assert f"bytes {start}-{stop - 1}/{content.size}".encode() in buffer[:end]
        del buffer[: end + 4]
        digest, left = hashlib.sha256(), stop - start
        while left:
            fill(1)
            taken = min(left, len(buffer))
            digest.update(buffer[:taken])
            del buffer[:taken]
            left -= taken
        assert digest.digest() == sizes[start].digest()
    for piece in pieces:
        buffer.extend(piece)
    assert re.fullmatch(rb"\r\n--[0-9a-f]+--\r\n", buffer)


# --- All of it --------------------------------------------------------------------------------------------------------


def move(size: int) -> dict[str, int]:
    """Uploads in each way, and downloads in each way. Returns the proxy's growth in bytes for each way in."""
    content = Content(size)
    sha256 = content.sha256()
    grown: dict[str, int] = {}
    with serving(size) as (base_url, pid):
        for way in WAYS_IN:  # memory that the first use of a way loads and keeps for good does not count
            _move_once(Caller(base_url), way, Content(MIB), Content(MIB).sha256())
        for way in WAYS_IN:
            with Memory(pid) as memory:
                _move_once(Caller(base_url), way, content, sha256)
            grown[way] = memory.growth
    return grown


def _move_once(caller: Caller, way: str, content: Content, sha256: str) -> None:
    handle = WAYS_IN[way](caller, content, sha256)
    (block,) = caller.call("echo", text=handle)["content"]
    link = block["text"].removeprefix("a says ")
    assert hash_whole(link, content.size) == sha256
    assert hash_ranges(link, content.size) == sha256
    check_parts(link, content)
    caller.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="2Gi", help="such as 64Mi; the default is 2Gi")
    size = parse_size(parser.parse_args().size)
    worst = 0
    for way, growth in move(size).items():
        print(f"{way:5} {size / MIB:8.0f} MiB in, whole and by ranges out: the proxy grew by {growth / MIB:.1f} MiB")
        worst = max(worst, growth)
    return 0 if worst < GROWTH_MAX_BYTES else 1


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
