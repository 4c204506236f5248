"""What the agent does next, as tables. Nothing here reads a clock, draws a number or talks to anybody."""
