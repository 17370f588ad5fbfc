"""Rollouts from vLLM servers: the engine, a server's client, its weights, and its process."""

from r1lit.rollout.vllm.engine import VLLMEngine

__all__ = ["VLLMEngine"]
