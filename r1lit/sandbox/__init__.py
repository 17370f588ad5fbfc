"""Sandboxes: they run model-written programs without letting them touch anything."""
