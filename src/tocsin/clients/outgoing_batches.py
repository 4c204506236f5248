"""Turns a stream of requests into blocks, and encodes only what is about to be sent."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tocsin.clients.requests import Request
from tocsin.errors import LocalProtocolError
from tocsin.protocol.sessions import ClientSession

CORR_ID_BYTES: Final = 24


class OutgoingBatch(NamedTuple):
    """The content of one block; the three lists run in parallel."""

    corr_ids: list[bytes]
    requests: list[Request]
    transmissions: list[bytes]


class Encoded(NamedTuple):
    corr_id: bytes
    request: Request
    transmission: bytes


def encode_request(session: ClientSession, request: Request) -> Encoded:
    """Raises LocalProtocolError if the request cannot be sent in this session."""
    corr_id = os.urandom(CORR_ID_BYTES) if request.corr_id is None else request.corr_id
    transmission = session.request(corr_id, request.entity_id, request.command, request.key)
    session.require_fits(transmission)
    return Encoded(corr_id, request, transmission)


class OutgoingBatches:
    """Blocks are filled from the front, because the end of the stream is not known."""

    def __init__(self, session: ClientSession, requests: Iterable[Request]) -> None:
        self._session = session
        self._requests = iter(requests)
        self._carried: Encoded | None = None
        self.refused: list[tuple[Request, LocalProtocolError]] = []
        """Requests that cannot be sent. Take them after each `next_batch`."""

    def next_batch(self) -> OutgoingBatch | None:
        """Return the next batch, or None if there is nothing more to send."""
        batch = OutgoingBatch([], [], [])
        filler = self._session.filler()
        while (encoded := self._next_encoded()) is not None:
            if not filler.fits(encoded.transmission):
                self._carried = encoded
                break
            filler.add(encoded.transmission)
            batch.corr_ids.append(encoded.corr_id)
            batch.requests.append(encoded.request)
        batch.transmissions.extend(filler.take())
        return batch if batch.requests else None

    def unsent(self) -> Iterator[Request]:
        """Return the rest of the stream."""
        if self._carried is not None:
            yield self._carried.request
            self._carried = None
        yield from self._requests

    def _next_encoded(self) -> Encoded | None:
        if self._carried is not None:
            carried, self._carried = self._carried, None
            return carried
        for request in self._requests:
            try:
                return encode_request(self._session, request)
            except LocalProtocolError as error:
                self.refused.append((request, error))
        return None
