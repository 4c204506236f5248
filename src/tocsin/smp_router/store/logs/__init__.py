"""The files of an SMP store: formats of the reference, and logs of our own next to them (smp.md 10.1)."""
