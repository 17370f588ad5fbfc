"""Contributions of RL and of the base; README.md has the results."""
