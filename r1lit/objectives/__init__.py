"""Objectives of an update, and advantages from rewards.

Each class is one paper's objective, picked in YAML by ``class_path: r1lit.objectives.GRPO``; each
function is one numbered equation. ``docs/EQUATIONS.md`` is the index. Nothing here uses models or
Lightning: tensors in, tensors out.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
