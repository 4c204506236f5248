"""Apple's push service: requests, outcomes and the client. What other providers share belongs to `push`."""
