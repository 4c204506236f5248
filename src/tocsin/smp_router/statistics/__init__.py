"""What an SMP router counts, and its statistics file."""
