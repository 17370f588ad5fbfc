"""Branches of a run against runs of their own seeds: how much variance the shared history saves."""
