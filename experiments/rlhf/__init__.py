"""Classic RLHF in the small world; README.md says what came of it."""
