"""Search at inference and as training, in the small world; README.md says what came of it."""
