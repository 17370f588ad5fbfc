"""Verifiers with known error rates: what RL makes of them where truth is exact."""
