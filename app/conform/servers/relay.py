"""The program that a client under test starts as its server: it relays stdin and stdout to the test, over loopback.

The file is run as `relay.py PORT TOKEN`. It imports nothing of ours, to start fast: each conversation starts it anew.
"""

from __future__ import annotations

import os
import socket
import sys
import threading

HOST = "127.0.0.1"


def _upwards(peer: socket.socket) -> None:
    """Relays what the client sends, until it closes our stdin."""
    try:
        while chunk := os.read(0, 65536):
            peer.sendall(chunk)
        peer.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the test has closed the socket, which `relay` notices


def relay(port: int, token: str) -> None:
    """Relays both directions until the test closes the socket."""
    with socket.create_connection((HOST, port)) as peer:
        peer.sendall(token.encode() + b"\n")
        threading.Thread(target=_upwards, args=(peer,), daemon=True).start()
        try:
            while chunk := peer.recv(65536):
                view = memoryview(chunk)
                while view:
                    view = view[os.write(1, view) :]
        except OSError:
            pass  # the client reads no more, or the test is over


if __name__ == "__main__":
    relay(int(sys.argv[1]), sys.argv[2])
    os._exit(0)  # the other thread may be reading
