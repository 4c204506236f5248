"""Conditions that good rows meet, as data. Transforms apply them."""
