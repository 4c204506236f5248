"""Clients of SMP and NTF routers: request and response over one connection, pipelined."""

from tocsin.clients.ntf_client import NtfClient
from tocsin.clients.requests import Answer, Event, Request, RouterRefused
from tocsin.clients.settings import Backoff, ClientSettings
from tocsin.clients.smp_client import SmpClient

__all__ = [
    "Answer",
    "Backoff",
    "ClientSettings",
    "Event",
    "NtfClient",
    "Request",
    "RouterRefused",
    "SmpClient",
]
