"""Lines of the queue store log, `smp-server-store.log`: one record each (smp.md 10.1; reference: StoreLog.hs).

The format is the reference's, so that data moves between its server and ours in both directions. Each class is one kind
of line, with its fields, `encode`, `decode` and its effect. This module has the lines that add or remove a whole
object; `store_log_changes` has those that change a queue. Lines do not include the newline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Self, TypeAlias

from tocsin.durable.log_fields import (
    BadLogLine,
    OptionalFields,
    decode_field,
    decode_fields,
    decode_line,
    decode_number,
    encode_field,
    encode_fields,
    encode_number,
    exactly,
    labelled,
)
from tocsin.protocol.sessions import ServiceRole
from tocsin.smp_router.store.logs.store_log_changes import (
    BlockQueueLine,
    ChangeRecipientKeysLine,
    DeleteLinkLine,
    DeleteNotifierLine,
    NamesQueueLine,
    QueueChange,
    SecureQueueLine,
    SetLinkLine,
    SetNotifierLine,
    SetQueueServiceLine,
    SetTimeLine,
    SuspendQueueLine,
    UnblockQueueLine,
    decode_link,
    decode_mode,
    decode_notifier,
    decode_status,
    encode_link_data,
    encode_notifier,
    encode_status,
)
from tocsin.smp_router.store.records import QueueRecord, QueueStatus, ServiceRecord

_ROLES: Final = {role.value: role for role in ServiceRole}


@dataclass(frozen=True, slots=True)
class CreateQueueLine:
    """A whole queue.

    CREATE rid= rk=key,key rdh= sid= sk=[key] [queue_mode=M|C] [link_id= queue_data=fixed user]
           [notifier=id key secret [nsrv=]] [updated_at=] [status=off|blocked,info] [rsrv=]
    """

    tag: ClassVar[bytes] = b"CREATE"

    queue: QueueRecord

    def encode(self) -> bytes:
        queue = self.queue
        words = [
            b"CREATE rid=" + encode_field(queue.recipient_id),
            b"rk=" + encode_fields(queue.recipient_keys),
            b"rdh=" + encode_field(queue.dh_secret),
            b"sid=" + encode_field(queue.sender_id),
            b"sk=" + (encode_field(queue.sender_key) if queue.sender_key is not None else b""),
        ]
        if queue.mode is not None:
            words.append(b"queue_mode=" + queue.mode.value)
        if queue.link is not None:
            words.append(b"link_id=" + encode_field(queue.link.link_id))
            words.append(b"queue_data=" + encode_link_data(queue.link.data))
        if queue.notifier is not None:
            words.append(b"notifier=" + encode_notifier(queue.notifier))
        if queue.updated_at is not None:
            words.append(b"updated_at=" + encode_number(queue.updated_at))
        if queue.status is not QueueStatus.ACTIVE:
            words.append(b"status=" + encode_status(queue.status))
        if queue.service_id is not None:
            words.append(b"rsrv=" + encode_field(queue.service_id))
        return b" ".join(words)

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        if len(words) < 5:
            raise BadLogLine("CREATE lacks fields")
        sender_key = labelled(words[4], b"sk=")
        rest = OptionalFields(words[5:])
        queue = QueueRecord(
            decode_field(labelled(words[0], b"rid=")),
            decode_fields(labelled(words[1], b"rk=")),
            decode_field(labelled(words[2], b"rdh=")),
            decode_field(labelled(words[3], b"sid=")),
            decode_field(sender_key) if sender_key else None,
            decode_mode(rest),
            decode_link(rest),
            decode_notifier(rest) if rest.skip(b"notifier=") else None,
            updated_at=decode_number(rest.take()) if rest.skip(b"updated_at=") else None,
            status=decode_status(rest.take()) if rest.skip(b"status=") else QueueStatus.ACTIVE,
            service_id=decode_field(rest.take()) if rest.skip(b"rsrv=") else None,
        )
        rest.end()
        return cls(queue)


@dataclass(frozen=True, slots=True)
class DeleteQueueLine(NamesQueueLine):
    """DELETE rid"""

    tag: ClassVar[bytes] = b"DELETE"


@dataclass(frozen=True, slots=True)
class AddServiceLine:
    """NEW_SERVICE service_id= role=M|N|P cert=der,der cert_hash= created_at="""

    tag: ClassVar[bytes] = b"NEW_SERVICE"

    service: ServiceRecord

    def encode(self) -> bytes:
        service = self.service
        return b" ".join(
            [
                b"NEW_SERVICE service_id=" + encode_field(service.service_id),
                b"role=" + service.role.value,
                b"cert=" + encode_fields(service.certificates),
                b"cert_hash=" + encode_field(service.fingerprint),
                b"created_at=" + encode_number(service.created_at),
            ]
        )

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        service_id, role, certificates, fingerprint, created_at = exactly(words, 5)
        known = _ROLES.get(labelled(role, b"role="))
        if known is None:
            raise BadLogLine("NEW_SERVICE with an unknown role")
        return cls(
            ServiceRecord(
                decode_field(labelled(service_id, b"service_id=")),
                known,
                decode_fields(labelled(certificates, b"cert=")),
                decode_field(labelled(fingerprint, b"cert_hash=")),
                decode_number(labelled(created_at, b"created_at=")),
            )
        )


StoreLogRecord: TypeAlias = CreateQueueLine | DeleteQueueLine | AddServiceLine | QueueChange


def decode_store_log_line(line: bytes) -> StoreLogRecord:
    """Raises `BadLogLine`."""
    return decode_line(line, _RECORDS)


_RECORDS: Final[dict[bytes, type[StoreLogRecord]]] = {
    record.tag: record
    for record in (
        CreateQueueLine,
        SecureQueueLine,
        ChangeRecipientKeysLine,
        SetLinkLine,
        DeleteLinkLine,
        SetNotifierLine,
        DeleteNotifierLine,
        SuspendQueueLine,
        BlockQueueLine,
        UnblockQueueLine,
        DeleteQueueLine,
        SetTimeLine,
        AddServiceLine,
        SetQueueServiceLine,
    )
}
