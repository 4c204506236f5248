"""Settings of an SMP router: their keys, their file, and where its folders are."""
