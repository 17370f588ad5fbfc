"""Distillation against reinforcement learning of the same small base, at equal compute."""
