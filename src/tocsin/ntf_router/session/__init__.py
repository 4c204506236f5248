"""Sessions of devices: verified requests, the state they are executed against, and the events that they report."""
