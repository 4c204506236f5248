"""The example of the README is a program that works."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tests.doubles.routers import running_router
from tocsin.crypto.keys import X25519PrivateKey
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Done
from tocsin.protocol.sessions import ReceivedCommand
from tocsin.protocol.smp.recipient_commands import AcknowledgeMessage, CreateQueue
from tocsin.protocol.smp.responses import MessageReceived, QueueCreated
from tocsin.protocol.smp.sender_commands import SendMessage
from tocsin.transport.router_sessions import RouterConnection

README = Path(__file__).resolve().parents[2] / "README.md"
RECIPIENT_ID, SENDER_ID, MESSAGE_ID = b"\x01" * 24, b"\x02" * 24, b"\x03" * 24
SEALED = bytes(16122)


async def test_the_programs_in_the_readme_run() -> None:
    acknowledged: list[bytes] = []

    async def serve(connection: RouterConnection) -> None:
        """One queue that gives back what it is sent."""
        session = connection.session
        while True:
            for received in await connection.receive():
                assert isinstance(received, ReceivedCommand)
                match received.command:
                    case CreateQueue(auth_key=key):
                        assert session.verifies(received, key)
                        created = QueueCreated(RECIPIENT_ID, SENDER_ID, X25519PrivateKey(b"\x04" * 32).public)
                        answers = [session.response(received.corr_id, b"", created)]
                    case SendMessage(body=b"hello"):
                        message = MessageReceived(MESSAGE_ID, SEALED)
                        answers = [
                            session.response(received.corr_id, SENDER_ID, Done()),
                            session.response(b"", RECIPIENT_ID, message),
                        ]
                    case AcknowledgeMessage(message_id):
                        acknowledged.append(message_id)
                        answers = [session.response(received.corr_id, RECIPIENT_ID, Done())]
                    case Ping():
                        answers = [session.response(received.corr_id, b"", Pong())]
                    case other:
                        raise AssertionError(f"the README does not say {other}")
                for answer in answers:
                    await connection.send([answer])

    programs = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert programs
    async with running_router(serve) as router:
        for program in programs:
            text = program.replace("smp://<fingerprint>@smp.example.org", str(router.address))
            assert str(router.address) in text
            await asyncio.to_thread(exec, compile(text, "README.md", "exec"), {})
    assert acknowledged == [MESSAGE_ID]
