"""A language model as judge, refiner and annotator, beside the oracles; see README.md."""
