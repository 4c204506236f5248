"""The token, former tokens that are still to be deleted at their routers, and secrets of Web Push endpoints."""

from __future__ import annotations

from tocsin.agent.store.records import AgentToken, EndpointSecret, TokenToDelete
from tocsin.agent.store.sqlite.database import SqliteSession
from tocsin.agent.store.sqlite.rows import (
    ENDPOINT_SECRET,
    TOKEN,
    TOKEN_TO_DELETE,
    Row,
    endpoint_secret_row,
    location_text,
    marks,
    read_endpoint_secret,
    read_token,
    read_token_to_delete,
    token_row,
    token_to_delete_place,
)
from tocsin.protocol.addresses import Scheme


def token(session: SqliteSession) -> AgentToken | None:
    row = session.database.execute(f"SELECT {TOKEN} FROM tokens").fetchone()  # noqa: S608 - our own columns
    return None if row is None else read_token(row, session.vault)


def save_token(session: SqliteSession, saved: AgentToken) -> None:
    session.database.execute(
        f"INSERT OR REPLACE INTO tokens (number, {TOKEN}) VALUES (1, {marks(TOKEN)})",  # noqa: S608
        token_row(saved, session.vault),
    )


def remove_token(session: SqliteSession, *, delete_at_router: bool, now: int) -> TokenToDelete | None:
    removed = token(session)
    session.database.execute("DELETE FROM tokens")
    if removed is None or removed.token_id is None or not delete_at_router:
        return None
    added = session.database.execute(
        "INSERT INTO tokens_to_delete (router, token_id, key_sealed, created_at) VALUES (?, ?, ?, ?)",
        (
            location_text(removed.router, Scheme.NTF),
            removed.token_id,
            session.vault.seal(removed.key, token_to_delete_place(removed.token_id)),
            now,
        ),
    )
    assert added.lastrowid is not None
    return TokenToDelete(added.lastrowid, removed.router, removed.token_id, removed.key, now)


def tokens_to_delete(session: SqliteSession) -> list[TokenToDelete]:
    rows = session.database.execute(f"SELECT {TOKEN_TO_DELETE} FROM tokens_to_delete ORDER BY number")  # noqa: S608
    return [read_token_to_delete(row, session.vault) for row in rows]


def token_deleted(session: SqliteSession, number: int) -> None:
    session.database.execute("DELETE FROM tokens_to_delete WHERE number = ?", (number,))


def forget_tokens_to_delete(session: SqliteSession, before: int) -> int:
    return session.database.execute("DELETE FROM tokens_to_delete WHERE created_at < ?", (before,)).rowcount


# Secrets of Web Push endpoints


def keep_endpoint_secret(session: SqliteSession, kept: EndpointSecret, most: int) -> None:
    rows = _rows(session)
    number = rows[0][0] + 1 if rows else 1
    present = token(session)
    others = 0
    for row in rows:
        other = read_endpoint_secret(row, session.vault)
        is_former = other.device_token == kept.device_token
        others += not is_former
        is_in_use = present is not None and present.device_token == other.device_token
        if is_former or (others >= most and not is_in_use):
            session.database.execute("DELETE FROM endpoint_secrets WHERE number = ?", (row[0],))
    session.database.execute(
        f"INSERT INTO endpoint_secrets ({ENDPOINT_SECRET}) VALUES ({marks(ENDPOINT_SECRET)})",  # noqa: S608
        endpoint_secret_row(number, kept, session.vault),
    )


def endpoint_secrets(session: SqliteSession) -> list[EndpointSecret]:
    return [read_endpoint_secret(row, session.vault) for row in _rows(session)]


def forget_endpoint_secrets(session: SqliteSession) -> None:
    session.database.execute("DELETE FROM endpoint_secrets")


def _rows(session: SqliteSession) -> list[Row]:
    return session.database.execute(
        f"SELECT {ENDPOINT_SECRET} FROM endpoint_secrets ORDER BY number DESC"  # noqa: S608 - our own columns
    ).fetchall()
