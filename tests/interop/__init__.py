"""Cases of the reference's own suites, run against routers that are started as an external suite starts them."""
