"""Language models that `export_llm` wrote for XNNPACK, beside ExecuTorch's own runtime and runner."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import executorch.extension.llm.custom_ops.custom_ops
import executorch.kernels.quantized  # noqa: F401  both register kernels
import numpy as np
import pytest
import torch
from executorch.runtime import Runtime

import pteron.llm
from pteron.compiler.pipeline import lower
from pteron.compiler.segments.analysis import analyse
from pteron.engine.devices.opening import Device
from pteron.errors import UnsupportedError
from pteron.llm.decoder import Decoder
from pteron.pte.file import ProgramFile
from pteron.runtime.llm_runner import GenerationConfig, Stats, TextLLMRunner
from tests.llm import xnnpack_llamas
from tests.llm.tiny_models import Tiny, weights
from tests.llm.torch_llama import Llama
from tests.support.memory import poison

VOCABULARY = xnnpack_llamas.PARAMS["vocab_size"]
PIECES = (7, 1, 1, 5, 1, 3, 10)
TOKENS = np.random.default_rng(0).integers(3, VOCABULARY, 64)

# A tolerance of its own for float16, which rounds differently in a chain of operators.
TOLERANCE = {"float16": 2e-2}
# Files whose tokens are computed together: a position may not decide where a row of a cache is.
BATCHED = ("plain", "four_bits", "int8_cache", "channelwise", "float16")


@pytest.mark.parametrize("name", xnnpack_llamas.VARIANTS)
def test_logits_are_those_of_executorch(device: Device, name: str) -> None:
    path = xnnpack_llamas.path(name)
    theirs = Runtime.get().load_program(path).load_method("forward")
    with pteron.load(path, device=device) as program:
        method, at = program.method(), 0
        for length in PIECES:
            inputs = [torch.tensor(TOKENS[None, at : at + length]), torch.tensor([at])]
            poison(method)
            got, want = method.execute(inputs)[0], theirs.execute(inputs)[0]
            torch.testing.assert_close(
                got.float(), want.float(), rtol=1e-4, atol=TOLERANCE.get(name, 2e-5), msg=f"{length} at {at}"
            )
            at += length


def tokenizer_json() -> str:
    """A byte-level tokenizer with one token for each character, and pairs of them: the model's vocabulary."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    special = ["<pad>", "<s>", "</s>"]
    pieces = [*special, *(chr(code) for code in range(33, 127)), "Ġ", "th", "he", "in"]
    pieces += [f"x{chr(code)}" for code in range(97, 97 + 26)]
    pieces.append("yy")
    assert len(pieces) == VOCABULARY
    made = Tokenizer(
        models.BPE({piece: n for n, piece in enumerate(pieces)}, [("t", "h"), ("h", "e"), ("i", "n")])
    )
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(text, special=True) for text in special])
    return made.to_str()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_text(tokenizer_json())
    return path


PROMPTS = [[5, 6, 7, 8, 9, 10], [40, 41, 42], [90, 3, 17, 60, 22]]


@pytest.mark.parametrize("name", ["four_bits", "int8_cache", "float16"])
def test_answers_are_the_same_alone_and_together(device: Device, tokenizer: Path, name: str) -> None:
    path = xnnpack_llamas.path(name)
    with pteron.llm.load(path, tokenizer=tokenizer, device=device, kv_dtype="f32") as llm:
        alone = [llm.generate(prompt, max_new_tokens=8) for prompt in PROMPTS]
    with pteron.llm.load(path, tokenizer=tokenizer, device=device, kv_dtype="f32", parallel=3) as llm:
        assert llm.decoder.parallel == 3
        together = llm.generate(PROMPTS, max_new_tokens=8)
    assert [answer.tokens for answer in together] == [answer.tokens for answer in alone]


@pytest.mark.parametrize("name", xnnpack_llamas.VARIANTS)
def test_which_files_run_several_conversations_in_one_call(name: str) -> None:
    with ProgramFile.open(xnnpack_llamas.path(name)) as file:
        assert analyse(lower(file, ["forward"]).unfused["forward"]).is_batchable == (name in BATCHED)


# -- ExecuTorch's runner --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runners(tokenizer: Path) -> Iterator[tuple[Any, TextLLMRunner]]:
    from executorch.extension.llm import runner

    path = str(xnnpack_llamas.path("plain"))
    ours = TextLLMRunner(path, str(tokenizer))
    yield runner.TextLLMRunner(path, str(tokenizer)), ours
    ours.close()


def test_the_runner_gives_the_same_pieces(runners: tuple[Any, TextLLMRunner]) -> None:
    from executorch.extension.llm import runner

    def pieces(twin: Any, kind: Any, prompt: str, **options: Any) -> tuple[list[str], Any]:
        found: list[str] = []
        stats: list[Any] = []
        twin.generate(prompt, kind(temperature=0.0, **options), found.append, stats.append)
        return found, stats[0]

    real, twin = runners
    for options in ({"max_new_tokens": 5}, {"max_new_tokens": 4, "echo": False}, {"seq_len": 12}):
        real.reset()
        twin.reset()
        want, theirs = pieces(real, runner.GenerationConfig, "the thing", **options)
        got, ours = pieces(twin, GenerationConfig, "the thing", **options)
        assert "".join(got) == "".join(want)
        assert ours.num_prompt_tokens == theirs.num_prompt_tokens
        assert ours.num_generated_tokens == theirs.num_generated_tokens
        # Without a reset, the text goes on.
        want, _ = pieces(real, runner.GenerationConfig, "in", max_new_tokens=3)
        got, _ = pieces(twin, GenerationConfig, "in", max_new_tokens=3)
        assert "".join(got) == "".join(want)


def test_the_runner_refuses_what_executorch_refuses(runners: tuple[Any, TextLLMRunner]) -> None:
    twin = runners[1]
    twin.reset()
    long = "a" * 40
    bad = [(long, {}), ("a", {"max_new_tokens": 0}), ("a", {"temperature": 1.5}), ("", {})]
    for prompt, options in bad:
        twin.reset()
        with pytest.raises(RuntimeError, match="Generation failed"):
            twin.generate(prompt, GenerationConfig(**options))
    twin.reset()
    twin.prefill("the")
    found: list[str] = []

    def give(piece: str) -> None:
        found.append(piece)
        twin.stop()

    twin.generate("", GenerationConfig(max_new_tokens=9, temperature=0.0), give)
    assert len(found) == 1
    assert json.loads(Stats().to_json_string())["num_prompt_tokens"] == 0


# -- two methods with common caches ---------------------------------------------------------------


TINY = Tiny("llama", tied=False)
MAX_LENGTH = 16


def two_methods(shared: bool) -> bytes:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
    from executorch.exir.passes import MemoryPlanningPass

    model = Llama(TINY, weights(TINY))
    length = torch.export.Dim("length", min=2, max=MAX_LENGTH)

    def export(count: int, shapes: Any) -> Any:
        example = (torch.zeros(1, count, dtype=torch.long), torch.zeros(1, dtype=torch.long))
        return torch.export.export(model, example, dynamic_shapes=shapes)

    edge = to_edge_transform_and_lower(
        {"prefill": export(MAX_LENGTH, ({1: length}, None)), "decode": export(1, None)},
        partitioner=[XnnpackPartitioner()],
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
        constant_methods={"get_max_context_len": TINY.context},
    )
    planning = MemoryPlanningPass(share_mutable_buffers=shared)
    return bytes(edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning)).buffer)


@pytest.fixture(scope="module")
def prefill_and_decode(once: Callable[[str, Callable[[Path], Any]], Path]) -> Path:
    def make(folder: Path) -> None:
        for name, shared in (("shared", True), ("apart", False)):
            (folder / f"{name}.pte").write_bytes(two_methods(shared))

    return once("prefill_and_decode", make)


def test_prefill_and_decode_are_one_model(device: Device, prefill_and_decode: Path) -> None:
    model = Llama(TINY, weights(TINY))
    with pteron.load(prefill_and_decode / "shared.pte", device=device) as program:
        decoder = Decoder(program)
        assert (decoder.max_length, decoder.context_length) == (MAX_LENGTH, TINY.context)
        states, at = [decoder.new_state() for _ in range(2)], 0
        for length in (9, 1, 1, 4, 1, 2):
            for number, state in enumerate(states):
                tokens = [(int(t) + 5 * number) % 100 for t in TOKENS[at : at + length]]
                logits = decoder.logits(tokens, at, state)
                if number == 0:
                    with torch.no_grad():
                        want = model(torch.tensor([tokens]), torch.tensor([at]))[0]
                    np.testing.assert_allclose(logits, want, rtol=1e-4, atol=2e-5)
            at += length


def test_caches_that_are_apart_are_refused(device: Device, prefill_and_decode: Path) -> None:
    with (
        pteron.load(prefill_and_decode / "apart.pte", device=device) as program,
        pytest.raises(UnsupportedError, match="share_mutable_buffers=True"),
    ):
        Decoder(program)
