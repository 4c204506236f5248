"""Web Push services, to which UnifiedPush distributors belong: requests, outcomes, and a client for many hosts."""
