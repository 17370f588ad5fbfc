"""Faults of a training run, seen in the files of its folder: rules with evidence and a key."""
