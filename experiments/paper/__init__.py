"""The figures and tables of the DeepSeek-R1 paper: README.md says of each what became of it."""
