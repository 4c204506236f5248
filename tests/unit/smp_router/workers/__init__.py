"""Tests of `tocsin.smp_router.workers`."""
