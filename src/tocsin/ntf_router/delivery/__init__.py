"""From notifications in the store to pushes at the providers, and back to their outcomes.

Spark executors import the pure parts of this folder, so nothing here imports the router's connections.
"""
