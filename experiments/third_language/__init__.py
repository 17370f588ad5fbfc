"""The language reward with three languages."""
