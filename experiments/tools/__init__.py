"""Tools and turns in the small world: what RL makes of a tool, with controls."""
