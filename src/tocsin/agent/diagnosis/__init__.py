"""Diagnosis of one connection's notifications: evidence, findings, and repairs.

`evidence` asks the routers. `diagnosis` and `subscription` turn evidence into findings and are pure.
"""
