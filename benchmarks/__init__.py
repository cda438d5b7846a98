"""Performance, as ratios measured in one process."""
