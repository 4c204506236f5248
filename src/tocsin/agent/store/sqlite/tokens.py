"""The token, and those that are still to be deleted at their routers."""

from __future__ import annotations

from tocsin.agent.store.records import AgentToken, TokenToDelete
from tocsin.agent.store.sqlite.database import Session
from tocsin.agent.store.sqlite.rows import (
    TOKEN,
    TOKEN_TO_DELETE,
    location_text,
    marks,
    token,
    token_row,
    token_to_delete,
    token_to_delete_place,
)
from tocsin.protocol.addresses import Scheme


def saved_token(session: Session) -> AgentToken | None:
    row = session.database.execute(f"SELECT {TOKEN} FROM tokens").fetchone()  # noqa: S608 - our own columns
    return None if row is None else token(row, session.vault)


def save_token(session: Session, saved: AgentToken) -> None:
    session.database.execute(
        f"INSERT OR REPLACE INTO tokens (number, {TOKEN}) VALUES (1, {marks(TOKEN)})",  # noqa: S608
        token_row(saved, session.vault),
    )


def remove_token(session: Session, delete_at_router: bool, now: int) -> TokenToDelete | None:
    removed = saved_token(session)
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


def tokens_to_delete(session: Session) -> list[TokenToDelete]:
    rows = session.database.execute(f"SELECT {TOKEN_TO_DELETE} FROM tokens_to_delete ORDER BY number")  # noqa: S608
    return [token_to_delete(row, session.vault) for row in rows]


def token_deleted(session: Session, number: int) -> None:
    session.database.execute("DELETE FROM tokens_to_delete WHERE number = ?", (number,))


def forget_tokens_to_delete(session: Session, before: int) -> int:
    return session.database.execute("DELETE FROM tokens_to_delete WHERE created_at < ?", (before,)).rowcount
