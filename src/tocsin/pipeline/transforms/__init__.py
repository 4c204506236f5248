"""DataFrame to DataFrame: no session, no reading, no writing, no clock."""
