"""Direct notifications at an SMP router: its NTF routers, their queues, and packets of clients."""
