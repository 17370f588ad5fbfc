"""Benchmarks: r1lit beside its peers, in one run, on the same work."""
