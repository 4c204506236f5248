"""Firebase Cloud Messaging: the service account, its access tokens, requests, answers and the client."""
