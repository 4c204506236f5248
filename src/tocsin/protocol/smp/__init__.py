"""SMP, the SimpleX Messaging Protocol, versions 6 to 18."""
