"""The command line: one folder per command group, one module per command, arguments in and text out.

Nothing here is for other packages to import: behaviour belongs to the programs.
"""
