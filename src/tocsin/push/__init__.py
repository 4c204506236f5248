"""Push providers: their interface, and a folder for each provider. Retries and outcomes belong to the routers."""
