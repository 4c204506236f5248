"""What `tocsin pipeline …` runs: thin, one module per job."""
