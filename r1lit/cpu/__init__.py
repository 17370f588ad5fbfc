"""Loops in C++ where PyTorch has no operation that is fast enough; built at first use."""

from r1lit.cpu.build import has_bfloat16_kernels, has_kernels

__all__ = ["has_bfloat16_kernels", "has_kernels"]
