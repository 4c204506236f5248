"""Sessions of clients: connections and their subscriptions, verified requests, and the effects of commands."""
