"""The files of an NTF store: formats of the reference, and logs of our own next to them (ntf.md 5.2)."""
