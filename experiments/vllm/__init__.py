"""Rollouts from vLLM: the same results as in this process, and through faults."""
