"""Real servers of records, PostgreSQL and Redis, and functions that open stores on them.

A server of the session serves most tests, each of which has a table or a prefix of its own. A test of faults starts a
server for itself. `bench/storage.py` uses them too.
"""

from __future__ import annotations

import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psycopg
import redis
from isthmus.storage.interface import Notices, Records
from isthmus.storage.postgres import PostgresRecords
from isthmus.storage.postgres_notices import PostgresNotices
from isthmus.storage.redis import RedisRecords
from isthmus.storage.redis_notices import RedisNotices

SECRET: Final = "s3cret-of-nobody"
READY_S: Final = 60
KINDS: Final = ("postgres", "redis")
INSTALL: Final = "run tests/real/setup.sh, which installs it"

_names = itertools.count()


class NotInstalled(Exception):
    """Raised when a server is not on this machine."""


class RecordServer:
    """A process of a server, and all processes that it starts."""

    port: int
    process: subprocess.Popen[bytes]

    def start(self) -> None:
        """Starts the process, and waits until it answers."""
        raise NotImplementedError

    def records(
        self, name: str, now_unix: Callable[[], float] | None = None, port: int | None = None, **options: Any
    ) -> Records:
        """Opens the store `name`, at another port than the server's if a relay has that."""
        raise NotImplementedError

    def notices(self, records: Records) -> Notices:
        raise NotImplementedError

    def connections(self) -> int:
        """Returns the number of connections, without that of this question."""
        raise NotImplementedError

    def pids(self) -> list[int]:
        """The process and its children."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def signal_all(self, number: signal.Signals) -> None:
        for pid in self.pids():
            self.send(pid, number)

    def send(self, pid: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    def kill(self) -> None:
        """Ends the process without a word. What it had not written to disk is lost."""
        pids = self.pids()
        self.signal_all(signal.SIGKILL)
        self.process.wait(READY_S)
        pause = threading.Event()
        while any(_is_alive(pid) for pid in pids):  # a child may still hold the memory that the next process needs
            pause.wait(0.01)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.signal_all(signal.SIGCONT)
            self.process.send_signal(signal.SIGINT)  # for PostgreSQL: without waiting for its clients
            try:
                self.process.wait(READY_S)
            except subprocess.TimeoutExpired:
                self.kill()


class PostgresServer(RecordServer):
    """PostgreSQL does not run as root: then it runs as the user `postgres`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs = _postgres_programs()
        self._user = "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
        self.port = free_port()
        data = folder / "data"
        if os.getuid() == 0:
            folder.chmod(0o755)
            shutil.chown(folder, "postgres")
        self._run("initdb", "-D", str(data), "-A", "scram-sha-256", "-U", "isthmus", "--no-sync")
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(
                f"port = {self.port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{folder}'\n"
                "max_connections = 60\nshared_buffers = 16MB\n"
            )
        self.start()

    def start(self) -> None:
        log = (self._folder / "log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [self._programs / "postgres", "-D", str(self._folder / "data")],
                user=self._user if os.getuid() == 0 else None,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

        def answers() -> bool:
            with suppress(psycopg.OperationalError), self.connect():
                return True
            return False

        try:
            _await(answers, self.process, self._folder / "log")
        except BaseException:
            self.stop()
            raise

    def dsn(self, password: str = SECRET, port: int | None = None) -> str:
        return f"postgresql://isthmus:{password}@127.0.0.1:{port or self.port}/postgres"

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self.dsn(), autocommit=True, connect_timeout=READY_S)

    def connections(self) -> int:
        with self.connect() as db:
            row = db.execute("select count(*) from pg_stat_activity where application_name = 'isthmus'").fetchone()
        assert row is not None
        return int(row[0])

    def records(
        self, name: str, now_unix: Callable[[], float] | None = None, port: int | None = None, **options: Any
    ) -> PostgresRecords:
        return PostgresRecords(self.dsn(port=port), table=name, now_unix=now_unix, **options)

    def notices(self, records: Records) -> Notices:
        assert isinstance(records, PostgresRecords)
        return PostgresNotices(records)

    def _run(self, program: str, *arguments: str) -> None:
        password = self._folder / "password"
        password.write_text(SECRET)
        if os.getuid() == 0:
            shutil.chown(password, "postgres")
        done = subprocess.run(
            [self._programs / program, *arguments, f"--pwfile={password}"],
            user=self._user if os.getuid() == 0 else None,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=READY_S * 2,
            check=False,
        )
        assert done.returncode == 0, done.stderr


class RedisServer(RecordServer):
    """Redis that writes each answer to disk, so that the law of durability holds."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("redis-server") or shutil.which("valkey-server")
        if program is None:
            raise NotInstalled(f"redis-server is not installed: {INSTALL}")
        self._program = program
        self._folder = folder
        self.port = free_port()
        self.start()

    def start(self) -> None:
        settings = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": self._folder,
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "requirepass": SECRET,
        }
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self._program, *(str(word) for name, value in settings.items() for word in (f"--{name}", value))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

        def answers() -> bool:
            with suppress(redis.RedisError), self.connect() as client:
                return bool(client.ping())
            return False

        try:
            _await(answers, self.process, self._folder / "log")
        except BaseException:
            self.stop()
            raise

    def url(self, password: str = SECRET, port: int | None = None) -> str:
        return f"redis://:{password}@127.0.0.1:{port or self.port}/0"

    def connect(self) -> redis.Redis:
        return redis.Redis(port=self.port, password=SECRET)

    def connections(self) -> int:
        with self.connect() as client:
            return len(client.client_list()) - 1

    def records(
        self, name: str, now_unix: Callable[[], float] | None = None, port: int | None = None, **options: Any
    ) -> RedisRecords:
        return RedisRecords(self.url(port=port), prefix=name, now_unix=now_unix, **options)

    def notices(self, records: Records) -> Notices:
        assert isinstance(records, RedisRecords)
        return RedisNotices(records)


class OpenedShared:
    """Opens one store on a server each time."""

    is_durable = True

    def __init__(self, server: RecordServer) -> None:
        self.server = server
        self.name = f"t{next(_names)}"

    def __call__(self, now_unix: Callable[[], float] | None) -> Records:
        return self.server.records(self.name, now_unix)


class Relay:
    """A TCP relay to a server. Of the answers after `lose_next`, it loses one, and closes that connection."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._is_losing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listener]
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_next(self) -> None:
        self._is_losing.set()

    def close(self) -> None:
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                self._sockets += [client, server]
                threading.Thread(target=self._forward, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._forward, args=(server, client, True), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if is_answer and self._is_losing.is_set():
                    self._is_losing.clear()
                    break
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def running(kind: str) -> Iterator[RecordServer]:
    """A server in a folder of its own. Not below pytest's, which other users cannot enter."""
    with tempfile.TemporaryDirectory(prefix=f"isthmus-{kind}-") as folder:
        server = PostgresServer(Path(folder)) if kind == "postgres" else RedisServer(Path(folder))
        try:
            yield server
        finally:
            server.stop()


def free_port(count: int = 1) -> int:
    """The first of so many ports in a row that nobody has.

    They are none of those that systems give to outgoing connections, so that they stay free until a server has them.
    """
    while True:
        first = random.randrange(10_000, 32_000)
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first


def _is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _postgres_programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    on_path = shutil.which("postgres")
    if not found and on_path is None:
        raise NotInstalled(f"postgresql is not installed: {INSTALL}")
    return found[-1] if found else Path(str(on_path)).parent


def _await(answers: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    pause = threading.Event()
    for _ in range(READY_S * 20):
        if answers():
            return
        assert process.poll() is None, log.read_text(errors="replace")
        pause.wait(0.05)
    raise AssertionError(f"the server did not start:\n{log.read_text(errors='replace')}")
