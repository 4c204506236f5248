"""Settings: frozen dataclasses, loaded once."""
