"""Terminal conventions of every command: exit codes, types of option values, progress bars.

Anything about a single program belongs to that program's folder.
"""
