"""Text that models read and write: templates, answers taken out of responses, notation."""
