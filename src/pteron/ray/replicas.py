"""The server on several machines: each replica of a Ray Serve deployment is a process with its own model."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pteron._util.extras import needs

# Requests with the same header x-session-id go to the same replica, which still has their KV cache.
STICKY = "ray.serve.experimental.consistent_hash_router"


def serve_app(
    model: str | Path,
    *,
    name: str | None = None,
    replicas: int = 1,
    device: str | int | None = None,
    load: dict[str, Any] | None = None,
    deployment: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Make an application for `ray.serve.run`, with the OpenAI API of `pteron serve`.

    Args:
        model: A path that every machine has.
        name: The model's name in requests. Default: the name of the file.
        replicas: The number of processes with the model.
        device: The adapter of every replica.
        load: Options of `pteron.llm.load` or `load_embedder`.
        deployment: Options of `ray.serve.deployment`. By default, requests with one `x-session-id` header go
            to one replica.
        **options: The options of `pteron.server.create_app`.
    """
    with needs("ray", "to serve on Ray"):
        from ray import serve

    path, shown, arguments = str(model), name or Path(model).stem, dict(load or {}, device=device)

    def build() -> Any:  # called in each replica
        return _application(path, shown, arguments, options)

    settings = {"name": "pteron", "num_replicas": replicas, **_sticky_routing(), **(deployment or {})}
    wrapped: Any = serve.ingress(build)()
    return serve.deployment(wrapped, **settings).bind()


def _sticky_routing() -> dict[str, Any]:
    """Nothing, in a version of Ray that has no such router."""
    from ray.serve.config import RequestRouterConfig

    if find_spec(STICKY) is None:
        return {}
    router = f"{STICKY}.ConsistentHashRouter"
    return {"request_router_config": RequestRouterConfig(request_router_class=router)}


def _application(path: str, name: str, load: dict[str, Any], options: dict[str, Any]) -> Any:
    from pteron.llm import load as load_language_model
    from pteron.llm import load_embedder
    from pteron.llm.embedder import is_embedder
    from pteron.llm.model_files import model_file
    from pteron.server import create_app

    program = Path(model_file(path, load.get("context_length"), ubatch=load.get("ubatch")))
    loaded = (load_embedder if is_embedder(program) else load_language_model)(program, **load)
    return create_app(loaded, name=name, **options)
