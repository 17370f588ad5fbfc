"""The language reward on mathematics, programs and puzzles."""
