"""Process reward models in the small world; README.md says what came of it."""
