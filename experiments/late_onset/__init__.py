"""When does a word set in, by how seldom the base uses it?"""
