"""The NTF router: the push server."""
