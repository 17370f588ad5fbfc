"""``r1lit view``: a run folder as one static HTML page, made from its files alone."""
