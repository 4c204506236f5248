"""Direct notifications at an NTF router: its keys, and packets of devices."""
