"""Search at inference: an engine generates, a scorer judges, and the best response is kept."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
