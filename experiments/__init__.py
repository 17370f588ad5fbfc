"""Experiments: one folder a question, its sweep as data, and the two commands that run them."""
