"""The report: figures collected from the tables, and pages made of them."""
