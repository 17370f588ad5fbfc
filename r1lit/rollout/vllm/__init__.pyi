from .engine import VLLMEngine as VLLMEngine
