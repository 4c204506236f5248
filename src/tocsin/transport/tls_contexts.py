"""TLS as the network speaks it (smp.md 2): one suite, no resumption, no SNI, no names.

Identity is never checked here. Callers validate the peer's chain after the handshake, with
`tocsin.crypto.certificate_chains`.
"""

from __future__ import annotations

import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from tocsin.crypto.credentials import Credentials
from tocsin.errors import BadCertificateChain, TlsUnsupported
from tocsin.transport import libssl
from tocsin.transport.tls_handshake import describe_failure

TLS13_CIPHER_SUITES: Final = "TLS_CHACHA20_POLY1305_SHA256"
TLS12_CIPHERS: Final = "ECDHE-ECDSA-CHACHA20-POLY1305"
GROUPS: Final = "X25519:X448"

logger = logging.getLogger(__name__)


def server_context(
    credentials: Credentials, *, alpn: Sequence[str], request_client_certificates: bool
) -> ssl.SSLContext:
    """A context for listeners.

    The first protocol of the client's ALPN list that is in `alpn` is chosen; a client whose list has none is
    refused, one without a list is served with `alpn` None; an empty `alpn` ignores the lists.
    With `request_client_certificates` a client may present any chain, or none. Raises TlsUnsupported when
    that cannot be asked for on this Python, and BadCertificateChain when the credentials cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_NONE
    # A resumed session would have another session ID on each side (smp.md 2.4).
    context.num_tickets = 0
    _configure(context)
    _load(context, credentials)
    accepted = tuple(protocol.encode("ascii") for protocol in alpn)
    if accepted and not _attempt(
        "ALPN in the client's order", lambda: libssl.select_first_offered(context, accepted)
    ):
        context.set_alpn_protocols(list(alpn))
    if request_client_certificates:
        libssl.accept_any_client_certificate(context)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context(*, alpn: Sequence[str], credentials: Credentials | None) -> ssl.SSLContext:
    """A context for dialing; `credentials` are presented when the router asks for a certificate.

    An empty `alpn` sends no ALPN extension. Raises BadCertificateChain when the credentials cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _configure(context)
    if credentials is not None:
        _load(context, credentials)
        _attempt(
            "whether routers ask for our certificate", lambda: libssl.count_certificate_requests(context)
        )
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def _configure(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(TLS12_CIPHERS)
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    # Blocks show whether something is missing. OpenSSL would answer an end without close_notify with an alert, and
    # the peer's system would answer that with a reset, which hides how many of our last blocks had arrived.
    context.options |= ssl.OP_IGNORE_UNEXPECTED_EOF
    _attempt("the TLS 1.3 cipher suite", lambda: libssl.set_cipher_suites(context, TLS13_CIPHER_SUITES))
    _attempt("the key agreement groups", lambda: libssl.set_groups(context, GROUPS))
    _attempt("no session cache", lambda: libssl.switch_off_session_cache(context))


def _attempt(what: str, setting: Callable[[], None]) -> bool:
    """Try an optional setting. Returns False and logs a warning if it could not be made."""
    try:
        setting()
    except TlsUnsupported as error:
        logger.warning("TLS setting left at OpenSSL's default: %s (%s)", what, error)
        return False
    return True


def _load(context: ssl.SSLContext, credentials: Credentials) -> None:
    with _as_file(credentials.chain_pem + credentials.private_key_pem) as path:
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            raise BadCertificateChain(
                f"OpenSSL refuses the credentials: {describe_failure(error)}"
            ) from error


@contextmanager
def _as_file(secret: bytes) -> Iterator[str]:
    """A path for OpenSSL, which loads keys only from files. In anonymous memory where the system has it."""
    memfd_create = getattr(os, "memfd_create", None)
    if memfd_create is not None and os.path.isdir("/proc/self/fd"):
        descriptor: int = memfd_create("tocsin-credentials")
        try:
            _write_all(descriptor, secret)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    descriptor, path = tempfile.mkstemp(prefix="tocsin-")  # mode 0600
    try:
        try:
            _write_all(descriptor, secret)
        finally:
            os.close(descriptor)
        yield path
    finally:
        os.unlink(path)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
