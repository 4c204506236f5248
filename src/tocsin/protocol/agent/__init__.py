"""What two agents say to each other through a queue."""
