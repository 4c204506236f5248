"""The columns of every table, declared once. Which tables exist and how they are stored is in `lake.tables`."""
