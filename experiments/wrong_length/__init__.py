"""Parts of GRPO that may lengthen wrong responses, one by one; README.md has the results."""
