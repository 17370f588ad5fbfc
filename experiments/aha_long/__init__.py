"""A limit of tokens that grows late."""
