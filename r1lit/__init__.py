"""DeepSeek-R1's recipe as a PyTorch Lightning research codebase."""

import os

__version__ = "0.1.0"

# PyTorch reads it with its first tensor: large ones in huge pages, where the kernel grants them.
# They leave fewer holes behind, and an update peaks lower (docs/PERFORMANCE.md).
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
