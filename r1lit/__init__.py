"""DeepSeek-R1's recipe as a PyTorch Lightning research codebase."""

__version__ = "0.1.0"
