"""The demo world of `tocsin up`, simulated phones, and the self-check.

Code that a production router needs does not belong here.
"""
