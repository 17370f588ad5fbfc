"""Models behind HTTP: their endpoints, requests with retries, and cached replies."""

from r1lit.endpoint.chat import ChatReply, ReplyCache, ServedModel
from r1lit.endpoint.client import Client, Endpoint, RequestError

__all__ = ["ChatReply", "Client", "Endpoint", "ReplyCache", "RequestError", "ServedModel"]
