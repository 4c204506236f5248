"""Names that clients ask to resolve: the command, and the resolver that the operator configured (v7.md 3)."""
