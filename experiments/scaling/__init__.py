"""Reward against compute: the fit of a sigmoid, and prediction of its end from its beginning."""
