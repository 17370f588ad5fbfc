"""Why R1 reasons worse than R1-Zero in the small world: limits, cold start, objective."""
