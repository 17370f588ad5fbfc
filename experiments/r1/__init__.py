"""The whole of R1: its stages as one resumable run, their table, and a plan of the full scale."""
