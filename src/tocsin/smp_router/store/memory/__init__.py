"""The records of an SMP store in memory, found by any of their ids."""
