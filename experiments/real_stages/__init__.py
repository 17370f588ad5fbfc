"""The stages of R1 on a real pretrained model and real R1 traces."""
