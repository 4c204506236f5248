"""One part of the report each: figures in, HTML out."""
