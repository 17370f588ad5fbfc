"""Sandboxes: they run model-written programs without letting them touch anything."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
