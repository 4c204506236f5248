"""Why did this notification not arrive: its way, and the stage where it stopped."""
