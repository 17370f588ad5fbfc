"""The tasks of docs/RECIPES.md in r1lit and in TRL, both run; `python -m benchmarks.compared`."""
