"""Distillation from real solutions against RL, on a real small model."""
