"""RL-2 on preference rewards for too long: what the reward models say, and what was meant."""
