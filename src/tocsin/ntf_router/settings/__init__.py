"""Settings of an NTF router: their keys, their file, and where its folders are."""
