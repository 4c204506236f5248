"""Tables on disk: their declarations, commits and files, also for readers without Spark. Computes nothing."""
