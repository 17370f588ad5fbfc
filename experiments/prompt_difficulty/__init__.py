"""Prompts chosen by difficulty: how many samples that saves."""
