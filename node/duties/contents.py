"""Contents of messages, as they stand in the log."""

from mayfly.node.shard import commands
from mayfly.node.shard.message import Message


def content_of(data: bytes, message: Message) -> commands.LetterContent:
    """The content of a message, cut from the payload of its entry."""
    header = message.offset + message.key_length
    body = header + message.header_length
    end = body + message.body_length
    return commands.LetterContent(data[message.offset : header], data[header:body], data[body:end], message.redelivered)


def names_and_header_of(data: bytes, message: Message) -> tuple[bytes, bytes]:
    """The exchange and key, and the content header, of a message, cut from the payload of its entry."""
    header = message.offset + message.key_length
    return data[message.offset : header], data[header : header + message.header_length]
