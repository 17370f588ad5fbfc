"""Onset of a reflection word, by its rate in the base."""
