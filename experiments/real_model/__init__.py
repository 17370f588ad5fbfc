"""A real pretrained model: R1-Zero on SmolLM2-135M-Instruct, with controls."""
