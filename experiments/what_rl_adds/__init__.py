"""What RL adds and what the base brings; README.md says what came of it."""
