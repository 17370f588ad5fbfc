"""The language reward, with and without."""
