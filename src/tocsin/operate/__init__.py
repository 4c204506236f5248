"""Everything that long-running programs share: settings, control port, metrics, health, statistics, signals, clock.

Nothing here knows what a router does. The keys, counters and commands of one router belong to that router.
"""
