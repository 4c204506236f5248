"""Push providers: what an NTF router asks of them, and each of them."""
