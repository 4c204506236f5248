"""Explains where a notification stopped, and why. Looks at events of the lake and writes nothing."""
