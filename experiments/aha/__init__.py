"""Response length that RL earns, or chooses, in the small world; README.md says what came of it."""
