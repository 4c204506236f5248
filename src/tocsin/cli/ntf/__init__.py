"""`tocsin ntf …`: one module per command."""
