"""Two reward models on real data; README.md says what came of it."""
