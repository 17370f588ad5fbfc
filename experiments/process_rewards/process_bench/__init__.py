"""Process reward models on real solutions with the first wrong step marked (ProcessBench)."""
