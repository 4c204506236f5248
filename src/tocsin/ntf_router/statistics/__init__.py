"""What an NTF router counts and measures, and its statistics file."""
