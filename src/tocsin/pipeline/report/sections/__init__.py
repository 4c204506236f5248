"""The report page and its sections: figures in, HTML out. Nothing here reads tables; `report` does not import it."""
