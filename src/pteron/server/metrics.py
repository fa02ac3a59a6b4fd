"""Metrics of the server, in the format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from pteron.llm import Piece

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """All metrics of a server. Each model has its own values, with the label `model`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter(
            "requests", "Requests that ended, by outcome: stop, length, cancelled, error, refused.", "outcome"
        )
        self.prompt_tokens = self._counter("prompt_tokens", "Tokens of the prompts of complete answers.")
        self.cached_tokens = self._counter("cached_tokens", "Those of them that were not computed again.")
        self.generated_tokens = self._counter("generated_tokens", "Generated tokens.")
        self.waiting = self._gauge("requests_waiting", "Requests in the queue.")
        self.active = self._gauge("requests_active", "Requests that are being answered.")
        self.kv_used = self._gauge("kv_used_bytes", "Memory of the KV caches of active requests.")
        self.kv_limit = self._gauge(
            "kv_limit_bytes", "Memory of the KV caches of all answers that may be made at the same time."
        )
        self.first_token = self._histogram(
            "time_to_first_token_seconds", "From the arrival in the queue to the first token.", SECONDS
        )
        self.step_seconds = self._histogram("step_seconds", "Time of one call of the program.", SECONDS)
        self.verified_nodes = self._counter(
            "verified_nodes",
            "Nodes that were computed again, by outcome: right, different, unknown (no reference has them).",
            "outcome",
        )
        self.step_rows = self._histogram("step_rows", "Tokens in one call of the program.", ROWS)

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(f"pteron_{name}", help, ["model", *labels], registry=self.registry)

    def _gauge(self, name: str, help: str) -> Gauge:
        return Gauge(f"pteron_{name}", help, ["model"], registry=self.registry)

    def _histogram(self, name: str, help: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"pteron_{name}", help, ["model"], buckets=buckets, registry=self.registry)

    def of(self, model: str) -> Meter:
        return Meter(self, model)

    async def response(self, http: Request) -> Response:
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)


class Meter:
    """The metrics of one model, reported by its scheduler."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._metrics = metrics
        self.model = model
        self._requests = metrics.requests
        self._generated = metrics.generated_tokens.labels(model)
        self._first_token = metrics.first_token.labels(model)
        self._step_seconds = metrics.step_seconds.labels(model)
        self._step_rows = metrics.step_rows.labels(model)

    def watch(
        self, active: Callable[[], int], waiting: Callable[[], int], kv_nbytes: int, parallel: int
    ) -> None:
        """kv_nbytes: the size of the KV caches of one answer."""
        gauges = self._metrics
        gauges.active.labels(self.model).set_function(active)
        gauges.waiting.labels(self.model).set_function(waiting)
        gauges.kv_used.labels(self.model).set_function(lambda: active() * kv_nbytes)
        gauges.kv_limit.labels(self.model).set(parallel * kv_nbytes)

    def step(self, rows: int, seconds: float) -> None:
        self._step_rows.observe(rows)
        self._step_seconds.observe(seconds)

    def verified(self, outcome: str) -> None:
        self._metrics.verified_nodes.labels(self.model, outcome).inc()

    def first_piece(self, seconds: float) -> None:
        self._first_token.observe(seconds)

    def piece(self, item: Piece | Exception) -> None:
        if isinstance(item, Exception):
            self._ended("error")
            return
        if item.token is not None:
            self._generated.inc()
        if item.finish_reason:
            self._ended(item.finish_reason)
        if item.stats:
            self._metrics.prompt_tokens.labels(self.model).inc(item.stats.prompt_tokens)
            self._metrics.cached_tokens.labels(self.model).inc(item.stats.cached_tokens)

    def refused(self) -> None:
        self._ended("refused")

    def _ended(self, outcome: str) -> None:
        self._metrics.requests.labels(self.model, outcome).inc()
