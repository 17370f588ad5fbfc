"""Models behind HTTP: where they are, requests with retries, and what they replied."""

from r1lit.endpoint.chat import Reply, ReplyCache, ServedModel
from r1lit.endpoint.client import Client, Endpoint, RequestError

__all__ = ["Client", "Endpoint", "Reply", "ReplyCache", "RequestError", "ServedModel"]
