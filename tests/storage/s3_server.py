"""A real server of S3's protocol, moto, and relays in front of it that fail."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from isthmus.storage.interface import Blobs
from isthmus.storage.s3 import S3Blobs
from isthmus.storage.s3_location import parse_location
from isthmus.storage.s3_objects import S3Objects

ROOT: Final = Path(__file__).parent.parent.parent
MOTO: Final = Path(os.environ.get("ISTHMUS_REAL", ROOT / ".real")) / "moto" / "bin" / "moto_server"
SECRET: Final = "not-a-secret-of-anybody"
BUCKET: Final = "isthmus-tests"
READY_S: Final = 120


class S3Server:
    """A process of moto. Each line of its log is a request."""

    def __init__(self, log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [MOTO, "-H", "127.0.0.1", "-p", "0"], stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )
        try:
            self.port = self._await_port()
            self.request("PUT", f"/{BUCKET}")
        except BaseException:
            self.stop()
            raise

    def _await_port(self) -> int:
        waiting = threading.Event()
        for _ in range(READY_S * 20):
            found = re.search(r"http://127\.0\.0\.1:(\d+)", self._log.read_text(errors="replace"))
            if found:
                return int(found[1])
            assert self.process.poll() is None, self._log.read_text(errors="replace")
            waiting.wait(0.05)
        raise AssertionError("moto did not start")

    def request(self, method: str, path: str) -> str:
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            text = answer.read().decode()
        assert isinstance(text, str)
        return text

    def requests(self) -> list[str]:
        """The methods of all requests so far. Requests for several removals are POST."""
        return re.findall(r'"(?:\x1b\[[0-9;]*m)*(GET|PUT|POST|HEAD|DELETE) /', self._log.read_text(errors="replace"))

    def names(self, prefix: str) -> list[str]:
        """All objects below a prefix, as another client sees them."""
        answer = self.request("GET", f"/{BUCKET}?list-type=2&prefix={prefix}/")
        return [name.removeprefix(f"{prefix}/") for name in re.findall(r"<Key>([^<]*)</Key>", answer)]

    def multipart_uploads(self) -> int:
        return self.request("GET", f"/{BUCKET}?uploads").count("<UploadId>")

    def objects(
        self, prefix: str, *, port: int | None = None, attempt_timeout_s: float = 30, retry_timeout_s: float = 30
    ) -> S3Objects:
        location = parse_location(
            f"s3://{BUCKET}/{prefix}?endpoint=http://127.0.0.1:{port or self.port}&region=us-east-1"
        )
        return S3Objects(location, attempt_timeout_s=attempt_timeout_s, retry_timeout_s=retry_timeout_s)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()


@contextmanager
def running_server(folder: Path) -> Iterator[S3Server]:
    if not MOTO.exists():
        pytest.skip(f"{MOTO} is not there: run tests/real/setup.sh, which installs moto")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_ACCESS_KEY_ID", "isthmus")
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        server = S3Server(folder / "moto.log")
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session", name="server")
def server_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_server(tmp_path_factory.mktemp("moto")) as server:
        yield server


class OpenedS3:
    """Opens one location each time, with drafts of its own for each `replica`."""

    is_durable = True

    def __init__(self, server: S3Server, folder: Path) -> None:
        self.server = server
        self.prefix = uuid.uuid4().hex
        self._folder = folder

    def __call__(self, replica: str = "a") -> Blobs:
        return S3Blobs(self.server.objects(self.prefix), str(self._folder / replica / "drafts"))


class Relay:
    """A TCP relay to the server. `pause` holds all bytes back, and `cut` also closes the connections."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open = threading.Event()
        self._open.set()
        self._sockets: list[socket.socket] = []
        self.passed = 0
        self.limit: int | None = None
        """Bytes from clients after which the relay cuts off."""
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [client, server]
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=(source, target, source is client), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_upward: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._open.wait()
                if is_upward:
                    self.passed += len(data)
                    if self.limit is not None and self.passed > self.limit:
                        self.close()
                        return
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def pause(self) -> None:
        self._open.clear()

    def resume(self) -> None:
        self._open.set()

    def close(self) -> None:
        """Closes all connections, and refuses new ones."""
        self._open.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for end in (self._listener, *self._sockets):
            with suppress(OSError):
                end.close()

    def reopen(self) -> None:
        """Accepts connections again, after `close`."""
        self._sockets.clear()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()


@contextmanager
def relay(server: S3Server) -> Iterator[Relay]:
    opened = Relay(server.port)
    try:
        yield opened
    finally:
        opened.close()
