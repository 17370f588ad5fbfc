"""Curation: generated responses are filtered and rewritten into documents to train on."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
