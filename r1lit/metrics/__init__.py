"""Metrics of responses: accuracy and its errors, reflection words, language consistency.

The torchmetric `r1lit.metrics.majority_vote.MajorityVote` is imported from its own file: torch
takes seconds to import.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
