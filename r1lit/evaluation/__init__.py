"""Evaluation: responses on disk, accuracy, reports and comparison."""
