"""HTTP/2 for push providers: a small client that owns its streams, windows and retries (RFC 9113)."""
