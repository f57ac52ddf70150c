"""A proxy of threads that block, round a copy of the engine: one client on stdin and stdout, one server process.

    make vendor DEST=examples/mcp_engine
    python examples/threaded.py COMMAND ARG…

Whoever has something to tell the engine takes the lock `moved`, and lets go when all that came of it is queued: nobody
waits for a peer with it. Each channel has a thread that reads and one that writes. See docs/vendoring.md.
"""

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

from mcp_engine import (
    Cause,
    ChannelId,
    Connected,
    Dial,
    Effect,
    End,
    Engine,
    Kind,
    Limits,
    LineChannel,
    Note,
    PipeOpening,
    Plan,
    ServerPlan,
)

GRACE_S = 5.0  # for a server to go once its stdin has ended, and for a client to read its last answers


class Channel(LineChannel):
    """One peer: its process or its client has gone (`is_gone`), or is not written to any more (`is_ended`)."""

    is_gone = is_ended = False


class Proxy:
    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.limits = Limits()
        server = ServerPlan(id="server", kind=Kind.PIPE)
        at_zero = time.time() - time.monotonic()
        plan = Plan(servers=(server,))
        self.engine = Engine(plan, entropy=os.urandom, unix_at_zero=at_zero, limits=self.limits)
        self.moved = threading.Condition()
        self.channels: dict[ChannelId, Channel] = {}

    def run(self) -> None:
        """Runs until the client has gone, and the server after it."""
        with self.moved:
            self.open(self.engine.new_channel(), self.keep_client, is_client=True)
            while self.channels:
                due = self.engine.next_timeout()
                self.moved.wait(None if due is None else max(0.0, due.at - time.monotonic()))
                self.tell(self.engine.handle_timeout)

    def open(self, number: ChannelId, keep: Callable[[Channel], None], *, is_client: bool = False) -> None:
        self.channels[number] = Channel(self.engine, number, is_client=is_client, limits=self.limits)
        start(keep, self.channels[number])

    def tell(self, receive: Callable[..., list[Effect]], *arguments: Any) -> None:
        """Call an input of the engine, and queue what comes of it before anything else is told."""
        with self.moved:
            for order in receive(*arguments, time.monotonic()):
                self.carry_out(order)
            self.moved.notify_all()

    def carry_out(self, order: Effect) -> None:
        if isinstance(order, Note):
            print(order.level, order.text, file=sys.stderr)
        elif isinstance(order, Dial):
            self.open(order.channel, self.keep_server)
        else:
            self.channels[order.channel].receive_order(order)

    def until(self, is_true: Callable[[], object], timeout_s: float | None = None) -> bool:
        with self.moved:
            return bool(self.moved.wait_for(is_true, timeout_s))

    def end(self, channel: Channel) -> None:
        """Ends the stream to a peer, after what is queued for it."""
        with self.moved:
            channel.is_ended = True
            self.moved.notify_all()

    def keep_client(self, channel: Channel) -> None:
        # `sys.stdout` has no buffer if PYTHONUNBUFFERED is set, and would drop the rest of an interrupted write
        sink = open(sys.stdout.fileno(), "wb")  # noqa: SIM115
        self.tell(self.engine.receive_open, channel.channel, PipeOpening("server"))
        writer = start(self.write, channel, sink)
        start(self.read, channel, sys.stdin.buffer, True)
        self.until(lambda: channel.is_gone or channel.is_closed)
        # a client that closes its end may still wait for answers
        self.until(lambda: sink.closed or not self.engine.owes(channel.channel), self.limits.drain_s)
        self.end(channel)
        writer.join(GRACE_S)
        self.lose(channel, Cause(End.GONE))

    def keep_server(self, channel: Channel) -> None:
        try:
            child = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            self.lose(channel, Cause(End.UNREACHABLE, str(error), unsent=True))
            return
        self.tell(self.engine.receive_open, channel.channel, Connected())
        start(self.write, channel, child.stdin)
        reader = start(self.read, channel, child.stdout, False)
        self.until(lambda: channel.is_gone or channel.is_closed)
        self.end(channel)
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_S)
        child.kill()
        reader.join(GRACE_S)  # its last words come first; a process of its own may hold the pipe open for longer
        self.lose(channel, Cause(End.BROKEN, f"the server ended with exit code {child.wait()}"))

    def lose(self, channel: Channel, cause: Cause) -> None:
        with self.moved:
            self.tell(self.engine.receive_close, channel.channel, cause)
            del self.channels[channel.channel]

    def read(self, channel: Channel, source: IO[bytes], is_client: bool) -> None:
        """Reads from a peer until it ends."""
        size_bytes = self.limits.read_size_bytes
        while self.may_read(channel, source, is_client) and (data := os.read(source.fileno(), size_bytes)):
            self.tell(channel.receive_bytes, data)
        with self.moved:
            self.tell(channel.receive_eof)
            channel.is_gone = True

    def may_read(self, channel: Channel, source: IO[bytes], is_client: bool) -> bool:
        """Waits while a channel is paused. False if its client has closed its end, and the server takes nothing."""
        while not self.until(lambda: not channel.is_paused, self.limits.drain_s):
            end = select.poll()
            end.register(source, 0)  # asks for the end alone: what comes before it is not read
            if is_client and end.poll(0):
                return False
        return True

    def write(self, channel: Channel, sink: IO[bytes]) -> None:
        with suppress(OSError), sink:  # it may be that nobody reads any more
            while data := self.next_output(channel):
                sink.write(data)
                sink.flush()
                self.tell(channel.written)
        channel.is_gone = True
        self.tell(self.engine.handle_timeout)  # for `keep_client` to look again

    def next_output(self, channel: Channel) -> bytes:
        with self.moved:
            self.moved.wait_for(lambda: channel.has_output or channel.is_ended)
            return channel.take()


def start(work: Callable[..., None], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


Proxy(sys.argv[1:]).run()
