"""Direct notifications, the next protocol: docs/direct-notifications.md describes it byte by byte."""
