"""Sections of the report page: each module turns figures into HTML. Nothing here reads tables."""
