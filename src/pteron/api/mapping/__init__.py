"""Run a method on any number of rows: gather them into batches, run these, and return results in order."""

from pteron.api.mapping.row_map import OnError, map_rows

__all__ = ["OnError", "map_rows"]
