"""Tests of Firebase Cloud Messaging against a fake of both Google endpoints."""
