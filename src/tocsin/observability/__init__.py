"""What the rest of the package reports about itself: metric names, events, log fields."""
