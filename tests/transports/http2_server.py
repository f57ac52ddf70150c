"""The server's side of an HTTP/2 connection, of h2, for tests: reads requests, writes responses and single frames."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, RequestReceived, SettingsAcknowledged, StreamEnded, StreamReset
from h2.settings import SettingCodes
from hyperframe.frame import Frame, GoAwayFrame, RstStreamFrame

JSON = ((b"content-type", b"application/json"),)
EVENTS = ((b"content-type", b"text/event-stream"),)


@dataclasses.dataclass
class Http2Request:
    """A request that arrives."""

    stream: int
    headers: dict[bytes, bytes]
    body: bytes = b""
    is_whole: bool = False


class Http2Server:
    """One connection.

    Args:
        settings: of the server.
        acknowledges: it gives back what a body takes of the windows.
    """

    def __init__(self, settings: dict[SettingCodes, int] | None = None, *, acknowledges: bool = True) -> None:
        self.http = H2Connection(
            H2Configuration(client_side=False, header_encoding=None, validate_outbound_headers=False,
                            normalize_outbound_headers=False)
        )  # fmt: skip
        self.http.initiate_connection()
        if settings:
            self.http.update_settings(settings)  # they hold from when the client has confirmed them
        self.requests: list[Http2Request] = []
        self.events: list[Event] = []
        self.resets: list[StreamReset] = []
        self._acknowledges = acknowledges

    def output(self) -> bytes:
        """Returns what is to be sent."""
        return self.http.data_to_send()

    def receive(self, data: bytes) -> None:
        """Takes what the client sends."""
        for event in self.http.receive_data(data):
            self.events.append(event)
            match event:
                case RequestReceived():
                    pairs = [(bytes(name), bytes(value)) for name, value in event.headers]  # type: ignore[arg-type]
                    assert len(dict(pairs)) == len(pairs)
                    self.requests.append(Http2Request(event.stream_id, dict(pairs)))
                case DataReceived():
                    self.request(event.stream_id).body += event.data
                    if self._acknowledges:
                        self.http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                case StreamEnded():
                    self.request(event.stream_id).is_whole = True
                case StreamReset():
                    self.resets.append(event)

    def request(self, stream: int) -> Http2Request:
        return next(request for request in self.requests if request.stream == stream)

    @property
    def is_acknowledged(self) -> bool:
        """True if the client has confirmed the server's settings."""
        return any(isinstance(event, SettingsAcknowledged) for event in self.events)

    def begin(self, stream: int, headers: Iterable[tuple[bytes, bytes]] = JSON, status: bytes = b"200") -> None:
        self.http.send_headers(stream, [(b":status", status), *headers])

    def send(self, stream: int, data: bytes, *, is_last: bool = False, pad_length: int | None = None) -> bytes:
        """Sends as much of a body as the client's windows allow. Returns the rest."""
        while True:
            size = min(self.http.local_flow_control_window(stream), self.http.max_outbound_frame_size)
            size = max(0, size if pad_length is None else size - pad_length - 1)
            piece, data = data[:size], data[size:]
            if not piece and data:
                return data
            self.http.send_data(stream, piece, end_stream=is_last and not data, pad_length=pad_length)
            if not data:
                return b""

    def reply(self, stream: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = JSON) -> None:
        """Sends a whole response, which fits into the client's windows."""
        self.begin(stream, headers)
        assert not self.send(stream, body, is_last=True)


def goaway(last_stream: int, code: int = 0, words: bytes = b"") -> bytes:
    """A GOAWAY behind which h2 still speaks."""
    return frame(GoAwayFrame(0, last_stream, code, words))


def reset(stream: int, code: int) -> bytes:
    return frame(RstStreamFrame(stream, code))


def frame(built: Frame) -> bytes:
    return built.serialize()
