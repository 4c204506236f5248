"""An NTF store in PostgreSQL: the tables of the reference, and ours next to them (ntf.md 5.3)."""
