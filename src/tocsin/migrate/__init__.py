"""`tocsin migrate`: moves a router from the reference's server to Tocsin, and back."""
