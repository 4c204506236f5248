"""Forwarding: this router as the proxy of a sender, and as the relay that a proxy reaches."""
