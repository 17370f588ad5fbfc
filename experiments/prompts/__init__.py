"""Effects of prompts on any policies: few-shot, wording, language and system prompt."""
