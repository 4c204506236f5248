"""HTTP for operators: thin handlers over what routers tell."""
