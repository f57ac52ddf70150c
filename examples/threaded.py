"""A proxy of threads that block, round a copy of the engine: one client on stdin and stdout, one server process.

    cp -r core examples/mcp_engine
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
from queue import SimpleQueue
from typing import IO, Any

from mcp_engine import (
    Cause,
    ChannelId,
    Close,
    Connected,
    Dial,
    Effect,
    End,
    Engine,
    Kind,
    Limits,
    Line,
    LineReader,
    Note,
    Pause,
    PipeOpening,
    Plan,
    Resume,
    Send,
    ServerPlan,
    answer_for,
    encode_line,
)

GRACE_S = 5.0  # for a server to go once its stdin has ended, and for a client to read its last answers


class Channel:
    """One peer. What it is to be sent waits in `outbox`, with the size to report, or None: the end."""

    def __init__(self, number: ChannelId) -> None:
        self.number = number
        self.outbox: SimpleQueue[tuple[bytes, int] | None] = SimpleQueue()
        self.may_read = threading.Event()
        self.may_read.set()
        self.is_over = threading.Event()


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
            self.open(self.engine.new_channel(), self.keep_client)
            while self.channels:
                due = self.engine.next_timeout()
                self.moved.wait(None if due is None else max(0.0, due.at - time.monotonic()))
                self.tell(self.engine.handle_timeout)

    def open(self, number: ChannelId, keep: Callable[[Channel], None]) -> None:
        self.channels[number] = Channel(number)
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
        elif isinstance(order, Send):
            self.channels[order.channel].outbox.put((order.message, len(order.message)))
        elif isinstance(order, Pause):
            self.channels[order.channel].may_read.clear()
        elif isinstance(order, Resume):
            self.channels[order.channel].may_read.set()
        elif isinstance(order, Close):
            self.channels[order.channel].may_read.set()  # what it still says is dropped
            self.channels[order.channel].is_over.set()

    def keep_client(self, channel: Channel) -> None:
        sink = sys.stdout.buffer
        self.tell(self.engine.receive_open, channel.number, PipeOpening("server"))
        writer = start(self.write, channel, sink)
        start(self.read, channel, sys.stdin.buffer, self.limits.request_size_max_bytes, True)
        channel.is_over.wait()
        with self.moved:  # a client that closes its end may still wait for answers
            self.moved.wait_for(lambda: sink.closed or not self.engine.owes(channel.number), self.limits.drain_s)
        channel.outbox.put(None)
        writer.join(GRACE_S)
        self.lose(channel, Cause(End.GONE))

    def keep_server(self, channel: Channel) -> None:
        try:
            child = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            self.lose(channel, Cause(End.UNREACHABLE, str(error), unsent=True))
            return
        self.tell(self.engine.receive_open, channel.number, Connected())
        start(self.write, channel, child.stdin)
        reader = start(self.read, channel, child.stdout, self.limits.reply_size_max_bytes, False)
        channel.is_over.wait()
        channel.outbox.put(None)  # its stdin is closed after what is queued
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_S)
        child.kill()
        reader.join(GRACE_S)  # its last words come first; a process of its own may hold the pipe open for longer
        self.lose(channel, Cause(End.BROKEN, f"the server ended with exit code {child.wait()}"))

    def lose(self, channel: Channel, cause: Cause) -> None:
        with self.moved:
            self.tell(self.engine.receive_close, channel.number, cause)
            del self.channels[channel.number]

    def read(self, channel: Channel, source: IO[bytes], size_max: int, is_client: bool) -> None:
        """Reads from a peer until it ends.

        A client's request that is too long is refused, and a server's response that is too long is replaced.
        """
        lines = LineReader(line_size_max_bytes=size_max)
        size_bytes = self.limits.read_size_bytes
        while self.may_read(channel, source, is_client) and (data := os.read(source.fileno(), size_bytes)):
            for line in lines.receive_bytes(data):
                if isinstance(line, Line):
                    self.tell(self.engine.receive_message, channel.number, line.data)
                elif (error := answer_for(line.head, line.size_bytes, size_max, is_request=is_client)) and is_client:
                    channel.outbox.put((error, 0))  # the engine knows nothing of it
                elif error is not None:
                    self.tell(self.engine.receive_message, channel.number, error)
        channel.is_over.set()

    def may_read(self, channel: Channel, source: IO[bytes], is_client: bool) -> bool:
        """Waits while a channel is paused. False if its client has closed its end, and the server takes nothing."""
        while not channel.may_read.wait(self.limits.drain_s):
            end = select.poll()
            end.register(source, 0)  # asks for the end alone: what comes before it is not read
            if is_client and end.poll(0):
                return False
        return True

    def write(self, channel: Channel, sink: IO[bytes]) -> None:
        with suppress(OSError), sink:  # it may be that nobody reads any more
            while (queued := channel.outbox.get()) is not None:
                sink.write(encode_line(queued[0]))
                sink.flush()
                self.tell(self.engine.receive_sent, channel.number, queued[1])
        channel.is_over.set()
        self.tell(self.engine.handle_timeout)  # for `keep_client` to look again


def start(work: Callable[..., None], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


Proxy(sys.argv[1:]).run()
