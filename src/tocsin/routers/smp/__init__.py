"""The SMP router: message queues and their notification side."""
