"""The commands that both routers have: each once, with a description of the router as an argument.

Modules here add arguments, call the routers and print. What another package could use belongs to `operate` or to the
routers themselves.
"""
