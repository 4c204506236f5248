"""Made-up data that depends on a seed and a row's number alone."""
