"""Keys, signatures, sealed boxes, certificates.

Bytes in, bytes out: nonces and times are arguments. How a command uses them belongs to `protocol/`.
"""
