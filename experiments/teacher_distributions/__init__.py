"""Distillation from R1's samples or from its distributions, at its own or the student's tokens."""
