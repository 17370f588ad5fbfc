"""Fine-tuning on own right answers against RL, from the rows of four studies."""
