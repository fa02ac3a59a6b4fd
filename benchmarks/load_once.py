"""Load a language model in a new process and run one decode step. Prints the cost of the load as JSON.

python -m benchmarks.load_once model.pte
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path


def main(path: Path) -> None:
    begin = time.perf_counter()
    import pteron
    from pteron.llm.decoder import Decoder

    with pteron.load(path, kv_dtype="f16") as program:
        decoder = Decoder(program)
        decoder.logits([1], 0, decoder.new_state())
        answer = {
            "cpu_s": time.process_time(),  # with the start of Python
            "wall_s": time.perf_counter() - begin,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "gpu_mb": program.device.allocated_nbytes / 1e6,
            "adapter": program.device.name,
        }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
