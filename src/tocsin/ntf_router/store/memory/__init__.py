"""Tokens, subscriptions and last notifications in memory."""
