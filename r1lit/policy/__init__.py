"""Policies and teachers: any Hugging Face causal language model, and its log-probabilities."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
