"""The teaching loop."""
