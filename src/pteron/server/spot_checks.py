"""While a model is in use: of some calls, one node is computed again by a reference, and compared."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from random import Random
from typing import Any

from pteron.llm.decoder import Decoder, Segment
from pteron.server.metrics import Meter
from pteron.tools.verify import executorch_runtime
from pteron.tools.verify.verification import Judge, best_reference, open_reference
from pteron.tools.verify.walk import run_step

log = logging.getLogger("uvicorn.error")


class SpotChecks:
    """Checks a share of the calls of a model, each after its answers have got their logits.

    A call is made again, node by node, up to a random one. Its inputs are those of the call before, so the KV
    caches get the same values again.
    """

    def __init__(self, decoder: Decoder, share: float, meter: Meter) -> None:
        self._decoder = decoder
        self._share = share
        self._meter = meter
        self._random = Random()

    def __call__(self, segments: Sequence[Segment[Any]]) -> None:
        if self._random.random() >= self._share:
            return
        try:
            self._check(segments)
        except Exception as error:  # it ends no answer
            log.warning("a call could not be verified: %s: %s", type(error).__name__, error)

    def _check(self, segments: Sequence[Segment[Any]]) -> None:
        with self._decoder.prepare_many(segments) as (method, call):
            steps = [step for step in call.steps() if step.kernels]
            chosen = self._random.randrange(len(steps))
            for step in steps[:chosen]:
                step.run()
            run = run_step(call, steps[chosen])
        with open_reference(best_reference(), method.device, executorch_runtime.shared()) as reference:
            for result in Judge(method, reference).judge(run):
                outcome = "different" if result.is_bad else "right" if result.reference else "unknown"
                self._meter.verified(outcome)
                if result.is_bad:
                    log.error("verify: %s", result)
