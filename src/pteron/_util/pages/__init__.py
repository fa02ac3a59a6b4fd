"""Files of web pages that the server and static sites share: the chat page, its style, and its scripts."""

from __future__ import annotations

from importlib.resources import files

# What `chat.html` uses, besides `main.js`.
CHAT = ("chat.css", "chat.js", "icon.svg", "markdown.js", "theme.js")


def read(name: str) -> bytes:
    return (files(__package__) / name).read_bytes()
