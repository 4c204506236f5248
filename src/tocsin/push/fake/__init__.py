"""A hostile push provider for tests, which misbehaves on command over real HTTP/2 and TLS."""
