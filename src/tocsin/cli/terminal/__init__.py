"""What every command shares: exit codes."""
