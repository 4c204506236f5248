"""Next steps for a person, for every error of an agent's command."""

from __future__ import annotations

from typing import Final

from tocsin.cli.agent.folder import PASSPHRASE_VARIABLE
from tocsin.clients import RouterRefused
from tocsin.errors import (
    AgentError,
    BadBox,
    ClientError,
    DecodeError,
    HandshakeRefused,
    PeerIdentityMismatch,
    StoreError,
    TocsinError,
    TransportError,
)
from tocsin.protocol.error_codes import ErrorCode

_PASSPHRASE: Final = f"give --passphrase-file, or set {PASSPHRASE_VARIABLE}"

# The first matching row counts: kind of error, words in its text.
_STEPS: Final[tuple[tuple[type[TocsinError], str, str], ...]] = (
    (StoreError, "in use", "end the other `tocsin agent` that uses this folder"),
    (StoreError, "is damaged", ""),  # these name theirs
    (StoreError, "not an agent's store", ""),
    (StoreError, "newer version", ""),
    (StoreError, "is encrypted", _PASSPHRASE),
    (StoreError, "passphrase of", _PASSPHRASE),
    (StoreError, "not encrypted", f"leave out --passphrase-file and {PASSPHRASE_VARIABLE}"),
    (StoreError, "", "check the folder, its owner and the space on its disk"),
    (
        AgentError,
        "no token that this push",
        "run `tocsin agent register`, then `verify` with the push that arrives",
    ),
    (AgentError, "no token", "run `tocsin agent register` first"),
    (AgentError, "no Web Push endpoint", "run `tocsin agent register --web-push ENDPOINT` first"),
    (
        AgentError,
        "former Web Push endpoint",
        "use a push to the endpoint that was registered last",
    ),
    (AgentError, "no SMP router", "give --smp-server, or write smp_servers into agent.ini"),
    (AgentError, "no NTF router", "give --ntf-server, or write ntf_servers into agent.ini"),
    (AgentError, "no such connection", "`tocsin agent status` lists the connections"),
    (AgentError, "to settle them", "run this again: the messages that were shown have made room"),
    (AgentError, "not ready", "run `tocsin agent listen` until the other side has joined"),
    (BadBox, "", "use an unaltered push of this token"),
    (PeerIdentityMismatch, "", "check the address: its fingerprint is not that of the router that answered"),
    (TransportError, "", "check the network and the address with `tocsin ping`, then run this again"),
    (HandshakeRefused, "", "check with `tocsin ping` that the router supports one of our versions"),
    (
        ClientError,
        "CMD SYNTAX",
        "the router does not know this kind of device token: choose another NTF router or, for Web Push, try --compact",
    ),
    (ClientError, "", "run this again later; `tocsin agent doctor` says more"),
    (DecodeError, "push", "give the whole JSON of a push, as the provider delivered it"),
    (DecodeError, "", "check your input; `--help` has an example"),
)
_UNKNOWN_THERE: Final = "the router no longer knows it; run `tocsin agent doctor CONNECTION`"


def sentence(error: TocsinError) -> str:
    """Return the error and the next step. Errors of the commands themselves already name theirs."""
    step = next_step(error)
    return f"{error}; {step}" if step else str(error)


def next_step(error: TocsinError) -> str:
    if isinstance(error, RouterRefused) and error.error is ErrorCode.AUTH:
        return _UNKNOWN_THERE
    text = str(error)
    return next((step for kind, words, step in _STEPS if isinstance(error, kind) and words in text), "")
