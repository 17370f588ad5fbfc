"""The true policy gradient, and what estimators make of it."""
