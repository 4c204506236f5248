"""NTF, the protocol between devices and the push router, versions 1 to 3."""
