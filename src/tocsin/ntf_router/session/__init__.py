"""What every command of a device needs, and the events that the router reports."""
