"""The device token: registering, verifying, checking and deleting it at an NTF router.

`registration` decides and is pure. What an active token means for connections belongs to `subscriptions`.
"""
