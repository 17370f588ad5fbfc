"""DeepSeek-V3.2's corrections on rollouts of several ages."""
