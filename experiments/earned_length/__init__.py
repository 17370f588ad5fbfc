"""A base in which nobody searches for long, and RL that earns the length; README.md has it."""
