"""``r1lit view``: a run folder as one static HTML page. Reads files, imports nothing of a run."""
