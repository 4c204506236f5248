"""Pushing from Spark executors: the hand-over stream and the code that runs on executors.

Executors import these modules, so they import neither commands nor a router's service.
"""
