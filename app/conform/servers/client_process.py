"""The client that is tested, as a process: started anew for each conversation, and gone after it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from ....transports.stdio.server_process import ChildSpec, environment_for
from ...base.errors import Failed
from ..clients.stdio import GRACE_S, LAST_WORDS, end
from ..script.behaviour import Behaviour
from ..script.survey import Played
from .ledger import Ledger

URL, SERVER = "{url}", "{server}"
RELAY: Final = str(Path(__file__).with_name("relay.py"))
GLANCE_S: Final = 0.02
"""Between two looks at whether the client has gone."""
TALK_MAX: Final = 10
"""A conversation takes no longer than so many times the time limit, once it has begun, whatever the client does."""
START_S: Final = 60.0
"""For a client to say its first word: some load for a while, on a busy machine."""


def is_piped(spec: ChildSpec) -> bool:
    """Whether the client starts its server itself, by what `{server}` stands for."""
    return any(SERVER in text for text in (*spec.command, *spec.env.values()))


def for_url(spec: ChildSpec, url: str) -> ChildSpec:
    """The command of a client of this URL."""
    command = tuple(text.replace(URL, url) for text in spec.command)
    env = {name: value.replace(URL, url) for name, value in spec.env.items()}
    return msgspec.structs.replace(spec, command=command, env={**env, "ISTHMUS_URL": url})


def for_server(spec: ChildSpec, port: int, token: str) -> ChildSpec:
    """The command of a client that starts our end of a pipe. An argument that is `{server}` becomes several; within
    another it is one text, quoted for a shell."""
    server = (sys.executable, "-I", "-S", RELAY, str(port), token)
    line = shlex.join(server)
    command: list[str] = []
    for text in spec.command:
        command += server if text == SERVER else (text.replace(SERVER, line),)
    env = {name: value.replace(SERVER, line) for name, value in spec.env.items()}
    return msgspec.structs.replace(spec, command=tuple(command), env={**env, "ISTHMUS_SERVER": line})


class Stage:
    """Where a client is tested.

    Args:
        spec: how to start it.
        timeout_s: for its answers, and its silences.

    Attributes:
        words: what the last one said on stdout or stderr.
        hint: why it may have said nothing to the server; empty if nothing was seen of that.
    """

    def __init__(self, spec: ChildSpec, timeout_s: float) -> None:
        self._spec = spec
        self._timeout_s = timeout_s
        self.words: list[str] = []
        self.hint = ""

    def told(self) -> str:
        """What is known of the last one, for people."""
        words = " | ".join(word for word in self.words if word) or "nothing"
        return (f"{self.hint}; " if self.hint else "") + f"its last words: {words}"

    def __call__(self, behaviour: Behaviour) -> Played:
        """Start it anew, and be its server.

        Raises:
            Failed: it cannot be started.
        """
        raise NotImplementedError


class Client:
    """A running client.

    Attributes:
        words: the last lines that it said on stdout or stderr.

    Raises:
        Failed: it cannot be started.
    """

    def __init__(self, spec: ChildSpec) -> None:
        try:
            self._process = subprocess.Popen(
                spec.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment_for(spec, os.environ),
                cwd=spec.cwd,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise Failed(f"the client cannot be started: {error}") from error
        self.words: deque[str] = deque(maxlen=LAST_WORDS)
        self._overhearing = threading.Thread(target=self._overhear, daemon=True)
        self._overhearing.start()

    def wait(self, ledger: Ledger, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> bool:
        """Until it has gone, or has to be ended. Whether it hangs. `clock` is the ledger's."""
        begun_at = clock()
        while self._process.poll() is None:
            now = clock()
            if ledger.is_over or (not ledger.seen and now - begun_at > max(START_S, timeout_s)):
                return False
            if ledger.seen and ledger.is_idle and now - ledger.active_at > timeout_s:
                return True
            if now - begun_at > START_S + TALK_MAX * timeout_s:
                ledger.is_cut = True
                return False
            time.sleep(GLANCE_S)
        return False

    def end(self) -> int:
        """End it, if it has not gone. Returns its exit code."""
        end(self._process)
        self._overhearing.join(GRACE_S)
        return self._process.returncode

    def _overhear(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            while line := stdout.readline(4096):
                self.words.append(line.decode(errors="replace").strip())
