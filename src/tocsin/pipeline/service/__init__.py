"""The pipeline as a service: its settings file and its schedule. Computes nothing."""
