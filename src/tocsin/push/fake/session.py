"""One connection of the fake provider: jh2's state machine, which shares nothing with our own frames, on asyncio's TLS.

Frames that no state machine would send, such as GOAWAY before the answers of earlier streams, bypass it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

import jh2.config  # type: ignore[import-untyped]
import jh2.connection  # type: ignore[import-untyped]
import jh2.events  # type: ignore[import-untyped]
import jh2.exceptions  # type: ignore[import-untyped]
import jh2.settings  # type: ignore[import-untyped]
from jh2.hyperframe.frame import GoAwayFrame

from tocsin.push.fake.behaviours import (
    ACCEPT,
    Behaviour,
    CloseConnection,
    CloseMidAnswer,
    Delay,
    GoAway,
    Hold,
    ResetStream,
    Respond,
    SendRaw,
)

MAX_BODY_BYTES: Final = 65_536


@dataclass(slots=True)
class FakeRequest:
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""


class Receiver(Protocol):
    """The fake provider, which decides about requests."""

    def session_begun(self, session: FakeSession) -> int:
        """Add a connection. Returns its number."""

    def something_happened(self) -> None:
        """Note that something happened on a connection."""

    def request_received(self, session: FakeSession, stream_id: int, request: FakeRequest) -> Behaviour: ...

    def performed(self, behaviour: Behaviour) -> None:
        """Note the behaviour that the last request met."""

    def answered(self, session: FakeSession, stream_id: int, respond: Respond) -> None: ...

    def protocol_broken(self, session: FakeSession, error: Exception) -> None: ...

    def session_ended(self, session: FakeSession) -> None: ...


@dataclass(slots=True)
class SessionOptions:
    """Behaviour of a connection before its first push."""

    settings: Mapping[int, int] = field(default_factory=dict)
    """Further HTTP/2 settings, by number."""
    return_windows: bool = True
    """Whether received data reopens the window at once; otherwise `open_windows` does it."""
    greeting: bytes | None = None
    """Bytes that are sent instead of HTTP/2 settings."""


class FakeSession(asyncio.Protocol):
    def __init__(self, receiver: Receiver, options: SessionOptions) -> None:
        self.number = 0
        self.alpn: str | None = None
        """The negotiated application protocol."""
        self.streams: set[int] = set()
        """Streams that are not answered."""
        self.most_streams = 0
        self.goodbye: int | None = None
        """The error code of the client's GOAWAY."""
        self.pings = 0
        self.deaf = False
        """Whether everything from the client is ignored."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._receiver = receiver
        self._options = options
        self._transport: asyncio.Transport | None = None
        self._requests: dict[int, FakeRequest] = {}
        self._last_stream_id: int | None = None
        self._withheld: list[tuple[int, int]] = []
        self._unsent: dict[int, bytes] = {}
        """The rest of answers, by stream."""
        self._timers: set[asyncio.TimerHandle] = set()
        self._h2: Any = jh2.connection.H2Connection(jh2.config.H2Configuration(client_side=False))
        self._h2.local_settings = jh2.settings.Settings(
            client=False, initial_values={3: 100, **options.settings}
        )
        self._h2.decoder.max_allowed_table_size = self._h2.local_settings.header_table_size

    @property
    def window_to_client(self) -> int:
        """The client's window for the connection, not counting frames that bypass the state machine."""
        return int(self._h2.outbound_flow_control_window)

    @property
    def header_table_bytes(self) -> int:
        """The size of the client's header compression table."""
        return int(self._h2.decoder.header_table_size)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.alpn = transport.get_extra_info("ssl_object").selected_alpn_protocol()
        self.number = self._receiver.session_begun(self)
        if self._options.greeting is not None:
            self.send_raw(self._options.greeting)
            return
        self._h2.initiate_connection()
        self._flush()

    def data_received(self, data: bytes) -> None:
        if self.deaf or self._options.greeting is not None:
            return
        try:
            events = self._h2.receive_data(data)
        except jh2.exceptions.H2Error as error:
            self._receiver.protocol_broken(self, error)
            self._flush()
            self.abort()
            return
        for event in events:
            self._happened(event)
        self._send_unsent()
        self._flush()
        self._receiver.something_happened()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in self._timers:
            timer.cancel()
        self._transport = None
        if not self.ended.done():
            self.ended.set_result(None)
        self._receiver.session_ended(self)

    # Actions of the provider

    def perform(self, stream_id: int, behaviour: Behaviour) -> None:
        match behaviour:
            case Respond():
                self._respond(stream_id, behaviour)
            case Delay(seconds, then):
                loop = asyncio.get_running_loop()
                self._timers.add(loop.call_later(seconds, self.perform, stream_id, then))
            case Hold():
                pass
            case ResetStream(code):
                self.streams.discard(stream_id)
                with suppress(jh2.exceptions.H2Error):
                    self._h2.reset_stream(stream_id, code)
            case GoAway():
                self._go_away_at(stream_id, behaviour)
            case CloseMidAnswer(status):
                self._h2.send_headers(stream_id, [(b":status", b"%d" % status)])
                self._flush()
                self._receiver.answered(self, stream_id, Respond(status))
                self.close()
            case CloseConnection():
                self.abort()
            case SendRaw(data):
                self.send_raw(data)
        self._flush()

    def go_away(self, last_stream_id: int, code: int = 0) -> None:
        """Ignore later streams. Earlier ones can still be answered."""
        self._last_stream_id = last_stream_id
        self.streams = {each for each in self.streams if each <= last_stream_id}
        frame = GoAwayFrame(0, last_stream_id=last_stream_id, error_code=code)
        self.send_raw(frame.serialize())

    def change_settings(self, settings: Mapping[int, int]) -> None:
        self._h2.update_settings(dict(settings))
        self._flush()

    def open_windows(self) -> None:
        """Reopen the windows, now and from now on at once."""
        self._options.return_windows = True
        withheld, self._withheld = self._withheld, []
        for size, stream_id in withheld:
            self._h2.acknowledge_received_data(size, stream_id)
        self._flush()

    def send_raw(self, data: bytes) -> None:
        self._flush()
        if self._transport is not None:
            self._transport.write(data)

    def stop_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def close(self) -> None:
        """Close the connection after sending what was written."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _happened(self, event: Any) -> None:
        match event:
            case jh2.events.RequestReceived():
                self._requests[event.stream_id] = FakeRequest(list(map(tuple, event.headers)))
                self.streams.add(event.stream_id)
                self.most_streams = max(self.most_streams, len(self.streams))
            case jh2.events.DataReceived():
                self._body_received(event.stream_id, event.data, event.flow_controlled_length)
            case jh2.events.StreamEnded():
                self._request_complete(event.stream_id)
            case jh2.events.StreamReset():
                self._requests.pop(event.stream_id, None)
                self.streams.discard(event.stream_id)
            case jh2.events.PingReceived():
                self.pings += 1
            case jh2.events.ConnectionTerminated():
                self.goodbye = int(event.error_code)

    def _body_received(self, stream_id: int, data: bytes, size: int) -> None:
        request = self._requests.get(stream_id)
        if request is not None and len(request.body) < MAX_BODY_BYTES:
            request.body += data
        if self._options.return_windows:
            self._h2.acknowledge_received_data(size, stream_id)
        else:
            self._withheld.append((size, stream_id))

    def _request_complete(self, stream_id: int) -> None:
        request = self._requests.pop(stream_id, None)
        if request is None or (self._last_stream_id is not None and stream_id > self._last_stream_id):
            return
        behaviour = self._receiver.request_received(self, stream_id, request)
        self.perform(stream_id, behaviour)
        self._receiver.performed(behaviour)

    def _respond(self, stream_id: int, respond: Respond) -> None:
        if stream_id not in self.streams or self._transport is None:
            return
        headers = [(b":status", b"%d" % respond.status)]
        if respond.retry_after is not None:
            headers.append((b"retry-after", respond.retry_after.encode()))
        body = respond.body
        if body is None and respond.reason is not None:
            said = {"reason": respond.reason, "timestamp": respond.timestamp}
            body = json.dumps({name: value for name, value in said.items() if value is not None}).encode()
        self.streams.discard(stream_id)
        with suppress(jh2.exceptions.H2Error):  # the client may have left
            if body is None:
                self._h2.send_headers(stream_id, headers, end_stream=True)
            else:
                self._h2.send_headers(stream_id, headers)
                self._send_body(stream_id, body)
            self._receiver.answered(self, stream_id, respond)
        self._flush()

    def _send_body(self, stream_id: int, body: bytes) -> None:
        """Send as much as the client's windows allow, and the rest when it opens them."""
        while True:
            room = min(self._h2.local_flow_control_window(stream_id), self._h2.max_outbound_frame_size)
            if body and room <= 0:
                self._unsent[stream_id] = body
                return
            part, body = body[:room], body[room:]
            self._h2.send_data(stream_id, part, end_stream=not body)
            if not body:
                return

    def _send_unsent(self) -> None:
        unsent, self._unsent = self._unsent, {}
        for stream_id, body in unsent.items():
            with suppress(jh2.exceptions.H2Error):  # the client may have given up the stream
                self._send_body(stream_id, body)

    def _go_away_at(self, stream_id: int, behaviour: GoAway) -> None:
        last = stream_id - 2 if behaviour.last_stream_id is None else behaviour.last_stream_id
        self.go_away(max(0, last), behaviour.code)
        if behaviour.close:
            self.close()
        elif stream_id <= last:
            self._respond(stream_id, ACCEPT)

    def _flush(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return  # the client has left, and the transport may be without its TLS
        if data := self._h2.data_to_send():
            self._transport.write(data)
