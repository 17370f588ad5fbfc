"""Longer thinking on a real model, planted by priming: problems, documents, gates and arms."""
