from .chat import ChatReply as ChatReply, ReplyCache as ReplyCache, ServedModel as ServedModel
from .client import Client as Client, Endpoint as Endpoint, RequestError as RequestError
