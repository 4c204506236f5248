"""An SMP store whose durable side is PostgreSQL."""
