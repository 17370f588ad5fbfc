"""MCTS as training, R1's unsuccessful attempt (v1 §4.2.2), against GRPO at equal tokens."""
