"""Evaluation that takes seconds: what staleness hides of it, and what that costs."""
