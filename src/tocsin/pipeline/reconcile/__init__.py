"""Compares the queues that routers exported, and finds those about which they disagree. The report is elsewhere."""
