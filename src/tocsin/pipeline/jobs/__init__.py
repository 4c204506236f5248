"""One module per `tocsin pipeline` command: opens the session and the lake, calls the folder that does the work, and
prints a summary. Logic that a test calls without a command belongs in the other folders.
"""
