"""Programs for working on Tocsin; not part of the package."""
