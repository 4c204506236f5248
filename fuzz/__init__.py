"""Coverage-guided fuzzing of every decoder: `python -m fuzz --help`."""
