"""Evaluation: responses on disk, what they are worth, and tables to read and to compare."""
