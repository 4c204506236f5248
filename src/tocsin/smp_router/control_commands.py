"""The commands of the control port, and the role that each needs (smp.md 10.2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from tocsin.errors import DecodeError
from tocsin.operate.control_port import Role
from tocsin.protocol.error_codes import Blocked, decode_block_info
from tocsin.wire.base64url import decode_base64url


class Word(StrEnum):
    """The first word of a line."""

    AUTH = "auth"
    STATS = "stats"
    STATS_RTS = "stats-rts"
    SOCKETS = "sockets"
    SERVER_INFO = "server-info"
    STATUS = "status"
    BLOCK = "block"
    UNBLOCK = "unblock"
    CLIENTS = "clients"
    THREADS = "threads"
    SOCKET_THREADS = "socket-threads"
    DELETE = "delete"
    SAVE = "save"
    HELP = "help"
    QUIT = "quit"


@dataclass(frozen=True, slots=True)
class WordHelp:
    role: Role
    usage: str
    about: str


COMMAND_HELP: Final = {
    Word.AUTH: WordHelp(Role.NOBODY, "auth <password>", "get the rights of a user or of the administrator"),
    Word.HELP: WordHelp(Role.NOBODY, "help", "this list"),
    Word.QUIT: WordHelp(Role.NOBODY, "quit", "end the session"),
    Word.STATS: WordHelp(Role.USER, "stats", "counters since the start"),
    Word.STATUS: WordHelp(Role.USER, "status <senderId>", "state of a queue, by sender or link id"),
    Word.BLOCK: WordHelp(
        Role.USER, 'block <senderId> reason=spam|content[,notice={"ttl":seconds}]', "block a queue"
    ),
    Word.UNBLOCK: WordHelp(Role.USER, "unblock <senderId>", "unblock a queue"),
    Word.STATS_RTS: WordHelp(Role.USER, "stats-rts", "time, memory and garbage collection of the process"),
    Word.SOCKETS: WordHelp(Role.USER, "sockets", "open sockets by kind, and the counts of each port"),
    Word.SERVER_INFO: WordHelp(Role.USER, "server-info", "version, address, settings without secrets"),
    Word.CLIENTS: WordHelp(Role.ADMIN, "clients", "connected clients, comma-separated"),
    Word.DELETE: WordHelp(Role.ADMIN, "delete <senderId>", "delete a queue with its messages"),
    Word.SAVE: WordHelp(Role.ADMIN, "save", "write everything to disk"),
    Word.THREADS: WordHelp(Role.ADMIN, "threads", "asyncio tasks by what they run"),
    Word.SOCKET_THREADS: WordHelp(
        Role.ADMIN, "socket-threads", "tasks of clients' connections and where they wait"
    ),
}


@dataclass(frozen=True, slots=True)
class Plain:
    """A command of one word."""

    word: Word


@dataclass(frozen=True, slots=True)
class Authenticate:
    password: str = field(repr=False)
    word: Word = Word.AUTH


@dataclass(frozen=True, slots=True)
class OnQueue:
    """`status`, `unblock` or `delete`."""

    word: Word
    queue_id: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class BlockQueue:
    queue_id: bytes = field(repr=False)
    blocked: Blocked
    word: Word = Word.BLOCK


ControlCommand: TypeAlias = Plain | Authenticate | OnQueue | BlockQueue


def parse_control_line(line: str) -> ControlCommand | None:
    """None for an empty line. Raises DecodeError, whose text never repeats the line, which may be a password."""
    first, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    if not first:
        return None
    try:
        word = Word(first)
    except ValueError:
        raise DecodeError("unknown command, 'help' lists them") from None
    match word:
        case Word.AUTH if rest:
            return Authenticate(rest)
        case Word.STATUS | Word.UNBLOCK | Word.DELETE if rest:
            return OnQueue(word, decode_base64url(rest))
        case Word.BLOCK if rest:
            queue_id, _, reason = rest.partition(" ")
            return BlockQueue(decode_base64url(queue_id), decode_block_info(reason.strip()))
        case Word.AUTH | Word.STATUS | Word.UNBLOCK | Word.DELETE | Word.BLOCK:
            raise DecodeError(f"expected: {COMMAND_HELP[word].usage}")
        case _ if rest:
            raise DecodeError(f"expected: {COMMAND_HELP[word].usage}")
        case _:
            return Plain(word)
