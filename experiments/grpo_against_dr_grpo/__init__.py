"""GRPO against Dr. GRPO, from the rows of four studies."""
