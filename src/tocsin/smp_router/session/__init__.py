"""What every command of an SMP router needs: connections, subscriptions, verification, effects."""
