"""Messages between two agents through a queue, and the contents of pushes that an agent opens."""
