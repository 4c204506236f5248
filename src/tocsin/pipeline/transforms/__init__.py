"""DataFrame to DataFrame: no session, no reads, no writes, no clock."""
