"""Web Push services, which UnifiedPush distributors are."""
