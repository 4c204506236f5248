"""TLS connections: contexts, dialing, listening, blocks. No other folder opens SMP or NTF connections.

Connections run in "sock mode": a non-blocking `ssl.SSLSocket` on the loop's `add_reader` and `add_writer`,
because asyncio's own TLS costs more processor time and many times the memory.
"""
