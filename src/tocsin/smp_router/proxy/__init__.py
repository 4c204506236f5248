"""Forwarding: this router as the proxy of a sender, and as the relay behind another proxy."""
