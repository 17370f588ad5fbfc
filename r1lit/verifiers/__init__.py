"""Verifiers: they decide whether a response answers its problem."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
