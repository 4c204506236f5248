"""Pages and pictures of the state machines, made from the tables in the code by `python -m tools.diagrams`."""
