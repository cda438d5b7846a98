"""What found sheaves say: how they compose, what they share, and how they recall facts."""
