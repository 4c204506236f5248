"""The columns of every table, declared once."""
