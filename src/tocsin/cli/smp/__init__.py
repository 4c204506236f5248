"""`tocsin smp …`: one module per command."""
