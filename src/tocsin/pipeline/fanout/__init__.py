"""Campaigns: one push to each token of a router, from Spark executors. `delivery` has the sender that they share."""
