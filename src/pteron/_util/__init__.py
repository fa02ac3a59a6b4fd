"""Small helpers that belong to no other package: notebooks, caches, optional packages, files of web pages."""
