"""The agent's memory: records, and the interface of the store that keeps them.

Implementations have a folder of their own (`sqlite`). Decisions about records belong to the folders that make them.
"""
