"""`tocsin doctor`: examines an installation and says what is wrong and what to do.

Findings are values; the command prints them.
"""
