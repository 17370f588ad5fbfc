"""The CPU backend: loops in C++, built at first use, and settings of the process."""

from r1lit.device.cpu.backend import CPU
from r1lit.device.cpu.kernels import has_bfloat16_kernels, has_kernels

__all__ = ["CPU", "has_bfloat16_kernels", "has_kernels"]
