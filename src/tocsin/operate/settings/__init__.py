"""Settings from INI files, TOML files, the environment and the command line.

A program declares its keys in a table; the code here reads, checks, describes and writes them.
"""
