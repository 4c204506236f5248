"""The delivery: pending notifications become pushes, and the providers' answers become outcomes.

Spark executors import the pure parts of this folder, so nothing here imports the router's connections.
"""
