"""Options and output that the commands of both routers share."""
