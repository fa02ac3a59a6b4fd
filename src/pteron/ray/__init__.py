"""Pteron on Ray: a model for `ray.data`, whole files on a cluster, and serving with several replicas."""

from pteron._util.extras import needs

with needs("ray", "to run on Ray"):
    import ray.data  # noqa: F401

from pteron.data.table_predictor import TablePredictor as Predictor
from pteron.ray.file_pipeline import map_file_on_ray
from pteron.ray.replicas import serve_app

__all__ = ["Predictor", "map_file_on_ray", "serve_app"]
