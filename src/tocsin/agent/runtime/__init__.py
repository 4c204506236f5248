"""Foundations of an agent: settings, events for the app, background tasks and workers, connections to routers.

Nothing here decides anything about tokens, subscriptions or connections of the app.
"""
