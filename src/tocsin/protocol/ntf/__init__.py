"""NTF, the protocol between devices and NTF routers, versions 1 to 3."""
