"""Tests of the NTF router over real TLS."""
