"""What prompts do: few-shot, wording, language and system prompt, over any policies."""
