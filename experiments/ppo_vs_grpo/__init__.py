"""PPO with a critic against GRPO; README.md says what came of it."""
