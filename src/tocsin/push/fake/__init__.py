"""A hostile push provider for tests: real HTTP/2 and TLS, and it misbehaves on command."""
