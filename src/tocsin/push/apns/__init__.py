"""Apple's push service (APNs): requests, answers as outcomes, and the client."""
