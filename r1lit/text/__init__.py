"""Text: templates, prompts, extraction of answers and programs from responses, notation."""
