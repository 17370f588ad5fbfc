"""Repair of small repositories: rejection sampling on trajectories, then RL, with controls."""
