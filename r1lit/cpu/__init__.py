"""What makes a CPU fast: loops in C++, built at first use, and settings of the process."""

from r1lit.cpu.backend import CPU
from r1lit.cpu.build import has_bfloat16_kernels, has_kernels

__all__ = ["CPU", "has_bfloat16_kernels", "has_kernels"]
