"""The speed of every kernel on a device, and what bounds it."""
