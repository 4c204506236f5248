"""Secrets of Web Push endpoints."""

from __future__ import annotations

from tocsin.agent.store.records import EndpointSecret
from tocsin.agent.store.sqlite.database import Session
from tocsin.agent.store.sqlite.rows import ENDPOINT_SECRET, Row, endpoint_secret, endpoint_secret_row, marks
from tocsin.agent.store.sqlite.tokens import saved_token


def keep_endpoint_secret(session: Session, kept: EndpointSecret, most: int) -> None:
    rows = _rows(session)
    number = rows[0][0] + 1 if rows else 1
    token = saved_token(session)
    others = 0
    for row in rows:
        other = endpoint_secret(row, session.vault)
        is_former = other.device_token == kept.device_token
        others += not is_former
        is_in_use = token is not None and token.device_token == other.device_token
        if is_former or (others >= most and not is_in_use):
            session.database.execute("DELETE FROM endpoint_secrets WHERE number = ?", (row[0],))
    session.database.execute(
        f"INSERT INTO endpoint_secrets ({ENDPOINT_SECRET}) VALUES ({marks(ENDPOINT_SECRET)})",  # noqa: S608
        endpoint_secret_row(number, kept, session.vault),
    )


def endpoint_secrets(session: Session) -> list[EndpointSecret]:
    return [endpoint_secret(row, session.vault) for row in _rows(session)]


def forget_endpoint_secrets(session: Session) -> None:
    session.database.execute("DELETE FROM endpoint_secrets")


def _rows(session: Session) -> list[Row]:
    return session.database.execute(
        f"SELECT {ENDPOINT_SECRET} FROM endpoint_secrets ORDER BY number DESC"  # noqa: S608 - our own columns
    ).fetchall()
