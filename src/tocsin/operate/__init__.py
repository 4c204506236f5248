"""What every long-running program has: settings from INI, TOML and environment, control port, metrics, health,
statistics, signals, drain.

Nothing here knows a particular program. A router's own metrics, control commands and settings belong to the router; the
page that people open in a browser belongs to `web`.
"""
