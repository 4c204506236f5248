"""The report: figures collected from tables, and the page and CSV files made of them."""
