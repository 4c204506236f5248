"""What must hold of rows and tables, as data."""
