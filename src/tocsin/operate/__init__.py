"""Services of every long-running program: settings, control port, metrics, health, statistics, signals, drain, clock.

Nothing here knows queues, tokens or notifications: that belongs to the programs.
"""
