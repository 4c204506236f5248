"""Faults at random while agents write to each other; in the end every notification must have an outcome."""
