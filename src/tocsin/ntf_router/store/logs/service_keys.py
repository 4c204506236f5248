"""The file with the certificates of our services at SMP routers, and their private keys.

A line for each router: key hash, certificates, private key (PKCS#8), each in base64 and separated by spaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tocsin.durable.log_fields import decode_field, encode_field
from tocsin.durable.log_files import read_lines
from tocsin.errors import DecodeError, StoreError
from tocsin.ntf_router.store.logs.log_reading import SERVICE_KEYS
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.service_chains import decode_chain, encode_chain
from tocsin.protocol.addresses import RouterLocation


def service_key_lines(store: NtfMemoryStore) -> Iterator[bytes]:
    for router, credentials in store.all_service_credentials():
        fields = router.key_hash, encode_chain(credentials), credentials.private_key
        yield b" ".join(map(encode_field, fields))


def read_service_keys(folder: Path, store: NtfMemoryStore) -> None:
    """Read the file, if there is one. Routers that are gone are left out. Raises StoreError."""
    path = folder / SERVICE_KEYS
    for number, line in enumerate(read_lines(path), start=1):
        try:
            key_hash, chain, private_key = map(decode_field, line.split(b" "))
            credentials = decode_chain(chain, private_key)
        except (DecodeError, StoreError, ValueError) as error:
            raise StoreError(
                f"{path}, line {number}: not a service's certificate; restore it from a backup"
            ) from error
        store.put_service_credentials(RouterLocation((), "", key_hash), credentials)
