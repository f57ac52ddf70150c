"""The client under test, as a process that is started for each conversation and ended after it."""

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
"""Seconds between checks of whether the client has ended."""
TALK_MAX: Final = 10
"""Longest time of a conversation, in timeouts, after the time for starting."""
START_S: Final = 60.0
"""Timeout of the first message of a client: some take a while to load on a busy machine."""


def is_piped(spec: ChildSpec) -> bool:
    """True if the client starts its server on stdio itself: `{server}` is in its command or environment."""
    return any(SERVER in text for text in (*spec.command, *spec.env.values()))


def for_url(spec: ChildSpec, url: str) -> ChildSpec:
    """Puts the URL into the command and environment of a client."""
    command = tuple(text.replace(URL, url) for text in spec.command)
    env = {name: value.replace(URL, url) for name, value in spec.env.items()}
    return msgspec.structs.replace(spec, command=command, env={**env, "ISTHMUS_URL": url})


def for_server(spec: ChildSpec, port: int, token: str) -> ChildSpec:
    """Puts the command of our relay into the command and environment of a client that starts its server itself.

    An argument that is `{server}` becomes several arguments. Within another argument it becomes one text, quoted for a
    shell.
    """
    server = (sys.executable, "-I", "-S", RELAY, str(port), token)
    line = shlex.join(server)
    command: list[str] = []
    for text in spec.command:
        command += server if text == SERVER else (text.replace(SERVER, line),)
    env = {name: value.replace(SERVER, line) for name, value in spec.env.items()}
    return msgspec.structs.replace(spec, command=tuple(command), env={**env, "ISTHMUS_SERVER": line})


class ClientRunner:
    """Runs the client under test against a scripted server.

    Args:
        spec: how to start the client.
        timeout_s: timeout of its responses, and of its silences.

    Attributes:
        words: the last lines that the client wrote to stdout or stderr in the last run.
        hint: why it may have sent nothing to the server; empty if there is no sign of a reason.
    """

    def __init__(self, spec: ChildSpec, timeout_s: float) -> None:
        self._spec = spec
        self._timeout_s = timeout_s
        self.words: list[str] = []
        self.hint = ""

    def told(self) -> str:
        """Describes the last run for people."""
        words = " | ".join(word for word in self.words if word) or "nothing"
        return (f"{self.hint}; " if self.hint else "") + f"its last words: {words}"

    def __call__(self, behaviour: Behaviour) -> Played:
        """Starts the client, and plays its server.

        Raises:
            Failed: the client cannot be started.
        """
        raise NotImplementedError


class Client:
    """A running client.

    Attributes:
        words: the last lines that it wrote to stdout or stderr.

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
        self._output_reader = threading.Thread(target=self._read_output, daemon=True)
        self._output_reader.start()

    def wait(self, ledger: Ledger, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> bool:
        """Waits until the client has ended, or is to be ended. True if it hangs. `clock` is that of the ledger."""
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
        """Ends the client if it still runs. Returns its exit code."""
        end(self._process)
        self._output_reader.join(GRACE_S)
        return self._process.returncode

    def _read_output(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            while line := stdout.readline(4096):
                self.words.append(line.decode(errors="replace").strip())
