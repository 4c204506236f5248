"""Settings of an `ssl.SSLContext` for which Python has no interface, set in OpenSSL through ctypes.

The library is the one that `_ssl` uses, and the `SSL_CTX` pointer is read from the context object. Before
the pointer is used it is checked: OpenSSL must report through it the options that Python reports.
"""

from __future__ import annotations

import ctypes
import functools
import ssl
import sys
import threading
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_long, c_ubyte, c_uint, c_uint64, c_ulong, c_void_p
from typing import Any, Final

from tocsin.errors import TlsUnsupported

# ssl.h and tls1.h of OpenSSL 1.1.1 and 3.
_CTRL_SET_SESSION_CACHE_MODE: Final = 44
_CTRL_SET_GROUPS_LIST: Final = 92
_SESSION_CACHE_OFF: Final = 0
_ALPN_OK: Final = 0
_ALPN_FATAL: Final = 2

_VerifyCallback: Final = CFUNCTYPE(c_int, c_void_p, c_void_p)
_CertificateCallback: Final = CFUNCTYPE(c_int, c_void_p, c_void_p)
_AlpnCallback: Final = CFUNCTYPE(
    c_int, c_void_p, POINTER(c_void_p), POINTER(c_ubyte), c_void_p, c_uint, c_void_p
)


def set_cipher_suites(context: ssl.SSLContext, suites: str) -> None:
    """Set the TLS 1.3 cipher suites, in OpenSSL's list syntax. Raises TlsUnsupported."""
    if _library().SSL_CTX_set_ciphersuites(_pointer(context), suites.encode()) != 1:
        raise TlsUnsupported(f"OpenSSL has none of the TLS 1.3 cipher suites {suites}")


def set_groups(context: ssl.SSLContext, groups: str) -> None:
    """Set the key agreement groups, best first, in OpenSSL's list syntax. Raises TlsUnsupported."""
    if _library().SSL_CTX_ctrl(_pointer(context), _CTRL_SET_GROUPS_LIST, 0, groups.encode()) != 1:
        raise TlsUnsupported(f"OpenSSL does not know one of the groups {groups}")


def switch_off_session_cache(context: ssl.SSLContext) -> None:
    """Keep no sessions, so that none can be resumed by its id (TLS 1.2). Raises TlsUnsupported."""
    _library().SSL_CTX_ctrl(_pointer(context), _CTRL_SET_SESSION_CACHE_MODE, _SESSION_CACHE_OFF, None)


def accept_any_client_certificate(context: ssl.SSLContext) -> None:
    """Accept every peer certificate. The caller validates the chain afterwards.

    Raises TlsUnsupported.
    """
    _library().SSL_CTX_set_cert_verify_callback(_pointer(context), _ACCEPT, None)


def count_certificate_requests(context: ssl.SSLContext) -> None:
    """Count in `certificate_requests` how often a server asks a client of this context for a certificate.

    Raises TlsUnsupported.
    """
    _library().SSL_CTX_set_cert_cb(_pointer(context), _COUNT_REQUEST, None)


def certificate_requests() -> int:
    """Return how often servers asked clients of this thread for a certificate. A handshake's step may add one."""
    count: int = getattr(_requests, "count", 0)
    return count


def select_first_offered(context: ssl.SSLContext, accepted: tuple[bytes, ...]) -> None:
    """Make a server choose the first protocol of the client's ALPN list that is among `accepted`.

    If there is none, the client gets the fatal alert no_application_protocol. Python's own
    `set_alpn_protocols` follows the server's order and continues without a protocol. Raises TlsUnsupported.
    """
    _library().SSL_CTX_set_alpn_select_cb(_pointer(context), _alpn_callback(accepted), None)


def first_offered(offer: bytes, accepted: tuple[bytes, ...]) -> tuple[int, int] | None:
    """Return offset and length of the first accepted protocol in an ALPN list (RFC 7301, 3.1)."""
    at = 0
    while at < len(offer):
        start, size = at + 1, offer[at]
        if offer[start : start + size] in accepted:
            return start, size
        at = start + size
    return None


# Callbacks live forever: OpenSSL calls them for as long as any socket of any context lives, and there are no
# more of them than lists of protocols.
_ACCEPT: Final = _VerifyCallback(lambda _store, _argument: 1)
_requests: Final = threading.local()


def _count_request(_ssl: Any, _argument: Any) -> int:
    """OpenSSL calls this when it chooses a client's certificate, which it does only if the server asked for one."""
    _requests.count = certificate_requests() + 1
    return 1


_COUNT_REQUEST: Final = _CertificateCallback(_count_request)


@functools.cache
def _alpn_callback(accepted: tuple[bytes, ...]) -> Callable[..., int]:
    def select(_ssl: Any, out: Any, out_size: Any, offer: int, offer_size: int, _argument: Any) -> int:
        chosen = first_offered(ctypes.string_at(offer, offer_size), accepted)
        if chosen is None:
            return _ALPN_FATAL
        # Pointing into the offer is what SSL_select_next_proto does too: it outlives the call.
        out[0], out_size[0] = offer + chosen[0], chosen[1]
        return _ALPN_OK

    return _AlpnCallback(select)


@functools.cache
def _library() -> Any:
    """Return the libssl that `_ssl` has loaded. Raises TlsUnsupported."""
    if sys.implementation.name != "cpython":
        raise TlsUnsupported(f"SSL contexts of {sys.implementation.name} are not known; CPython is needed")
    import _ssl

    # Without a file `_ssl` is built into the interpreter, which may or may not export OpenSSL's names.
    library = ctypes.CDLL(getattr(_ssl, "__file__", None))
    try:
        library.OpenSSL_version_num.restype = c_ulong
        library.SSL_CTX_get_options.argtypes = [c_void_p]
        library.SSL_CTX_get_options.restype = c_uint64
        library.SSL_CTX_set_ciphersuites.argtypes = [c_void_p, c_char_p]
        library.SSL_CTX_ctrl.argtypes = [c_void_p, c_int, c_long, c_char_p]
        library.SSL_CTX_ctrl.restype = c_long
        library.SSL_CTX_set_cert_verify_callback.argtypes = [c_void_p, _VerifyCallback, c_void_p]
        library.SSL_CTX_set_cert_verify_callback.restype = None
        library.SSL_CTX_set_cert_cb.argtypes = [c_void_p, _CertificateCallback, c_void_p]
        library.SSL_CTX_set_cert_cb.restype = None
        library.SSL_CTX_set_alpn_select_cb.argtypes = [c_void_p, _AlpnCallback, c_void_p]
        library.SSL_CTX_set_alpn_select_cb.restype = None
    except AttributeError as error:
        raise TlsUnsupported(
            f"this Python's ssl module hides OpenSSL's functions ({error}); a Python whose _ssl is a shared "
            "library linked with libssl is needed, such as those of Linux distributions and pyenv"
        ) from error
    if library.OpenSSL_version_num() != ssl.OPENSSL_VERSION_NUMBER:
        raise TlsUnsupported("the OpenSSL that ctypes finds is not the one of Python's ssl module")
    return library


def _pointer(context: ssl.SSLContext) -> c_void_p:
    """Return the SSL_CTX of a context: the first field after the object header of CPython's PySSLContext."""
    pointer = c_void_p.from_address(id(context) + object.__basicsize__)
    if (
        not pointer.value
        or _library().SSL_CTX_get_options(pointer) != context.options & 0xFFFF_FFFF_FFFF_FFFF
    ):
        raise TlsUnsupported("the layout of this Python's SSL contexts is not the known one")
    return c_void_p(pointer.value)
