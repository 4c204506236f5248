"""What routers remember: records, the changes to them, and stores that keep both."""
