"""The SMP router's store in memory, made durable by logs in the reference's text formats (smp.md 10.1)."""
