"""Examines the ports of a router: whether it answers, and with its own certificates."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from tocsin.clients import ClientSettings, NtfClient, SmpClient
from tocsin.crypto.credentials import Credentials
from tocsin.doctor.findings import Finding, bad, ok, skipped, warn
from tocsin.errors import ConnectFailed, PeerIdentityMismatch, TocsinError
from tocsin.operate.control_port import HOST as CONTROL_HOST
from tocsin.operate.http_client import get_page
from tocsin.operate.operator_pages import READY_PATH
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.transport.client_sessions import DialSettings

_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where to reach such a listener from here


async def router_port_findings(
    scheme: Scheme,
    hosts: Iterable[str],
    ports: Iterable[int],
    credentials: Credentials | None,
    timeout: float,
) -> list[Finding]:
    """Connect to each port: TLS, both handshakes, the identity, PING."""
    reachable = list(dict.fromkeys(_ANY.get(host, host) for host in hosts))
    findings = []
    for port in ports:
        subject = f"port {port}"
        if port == 0:
            findings.append(skipped(subject, "the system chooses the port at each start, so it is unknown"))
        elif credentials is None:
            findings.append(
                skipped(subject, "the certificates are unusable, so the router cannot be identified")
            )
        else:
            findings.append(await _port_finding(subject, scheme, reachable, port, credentials, timeout))
    return findings


async def _port_finding(
    subject: str, scheme: Scheme, hosts: list[str], port: int, credentials: Credentials, timeout: float
) -> Finding:
    location = RouterLocation(tuple(hosts), str(port), credentials.fingerprint)
    dial = DialSettings(connect_timeout=timeout)
    kind = SmpClient if scheme is Scheme.SMP else NtfClient
    start = f"start the router with `tocsin {scheme.value} start`"
    try:
        async with kind.connect(
            RouterAddress(scheme, location, None), ClientSettings(dial=dial, response_timeout=timeout)
        ) as client:
            await client.ping()
            version, served = client.session.version, client.certificates
    except ConnectFailed as error:
        return bad(subject, f"nothing answers: {error}", f"{start}, or find in its log why it stopped")
    except PeerIdentityMismatch:
        return bad(
            subject,
            "another router answers: its certificates are not those of these settings",
            "stop it, or restart it if its certificates were replaced",
        )
    except TocsinError as error:
        return bad(subject, f"no working router answers: {error}", f"restart it, or {start}")
    if served[0] != credentials.chain[0]:
        return warn(
            subject,
            "the router answers with an older certificate than the one in its folder",
            "restart the router to use the new one",
        )
    return ok(subject, f"the router answers, its identity is verified, version {version}")


async def control_port_findings(
    port: int | None, passwords: Iterable[str | None], timeout: float
) -> list[Finding]:
    subject = "control port"
    if not port:
        why = "it is off" if port is None else "the system chooses it at each start"
        return [skipped(subject, why)]
    greeting = await _first_line(CONTROL_HOST, port, b"", timeout)
    if greeting is None:
        return [bad(subject, f"nothing answers on port {port}", "restart the router")]
    if not any(passwords):
        step = "set control_port_admin_password, or turn the port off"
        return [warn(subject, "it answers, but has no password, so nobody can use it", step)]
    return [ok(subject, f"it answers on port {port}")]


async def metrics_findings(host: str, port: int | None, timeout: float) -> list[Finding]:
    """Ask the router whether it is ready, at the port of its metrics."""
    subject = "metrics"
    if not port:
        return [
            skipped(subject, "they are off" if port is None else "the system chooses the port at each start")
        ]
    try:
        status, body = await get_page(_ANY.get(host, host), port, READY_PATH, timeout)
    except (OSError, TimeoutError):
        return [bad(subject, f"nothing answers on port {port}", "restart the router")]
    if status == 200:
        return [ok(subject, "the router reports that it is ready")]
    reason = body.strip().splitlines()[0][:200] if body.strip() else f"HTTP {status}"
    return [bad(subject, f"the router reports that it is not ready: {reason}", "find the cause in its log")]


async def _first_line(host: str, port: int, request: bytes, timeout: float) -> str | None:
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(request)
                return (await reader.readline()).decode(errors="replace")
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
