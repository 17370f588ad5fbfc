"""R1's pipeline with a stage left out, or with another amount of cold-start data."""
