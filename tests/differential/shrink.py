"""Make the record of a failure small: fewer calls, fewer steps, smaller tensors, plainer numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

from tests.differential.fills import tensor_of
from tests.differential.record import Record, Source, Step, names_in
from tests.differential.references import References

Fails = Callable[[Record], bool]
MOST_TRIES = 300
PLAIN = (0, 1)  # numbers that are tried in place of others


def shrunk(record: Record, fails: Fails, references: References) -> Record:
    """The smallest record found that still fails. `fails` is asked a few hundred times at most."""
    small, tries = record, 0
    progress = True
    while progress and tries < MOST_TRIES:
        progress = False
        for smaller in _smaller(small, references):
            tries += 1
            if fails(smaller):
                small, progress = smaller, True
                break
            if tries >= MOST_TRIES:
                break
    return small


def _smaller(record: Record, references: References) -> Iterator[Record]:
    """Records that are a little smaller, the smallest first."""
    yield from _fewer_points(record)
    yield from _fewer_steps(record, references)
    if record.points > 1:
        return
    yield from _fewer_arguments(record)
    yield from _smaller_sizes(record)
    yield from _plainer_numbers(record)


def _fewer_points(record: Record) -> Iterator[Record]:
    """One method; one point, where every size is fixed; or one call less."""
    if record.methods > 1:
        yield replace(record, methods=1)
    if record.points > 1:
        for point in dict.fromkeys(record.calls):
            yield _at_point(record, point)
    if len(record.calls) > 1:
        for number in range(len(record.calls)):
            yield replace(record, calls=record.calls[:number] + record.calls[number + 1 :])


def _at_point(record: Record, point: int) -> Record:
    sources = {name: _explicit(source, point) for name, source in record.sources.items()}
    return Record(sources, deepcopy(record.steps), [0], record.note, record.methods)


def _explicit(source: Source, point: int) -> Source:
    """A source whose numbers are in the record."""
    tensor = tensor_of(source, point)
    if tensor.is_complex():
        return replace(source, shapes=[list(tensor.shape)])
    return Source(source.kind, source.dtype, [list(tensor.shape)], values=[tensor.flatten().tolist()])


def _fewer_steps(record: Record, references: References) -> Iterator[Record]:
    steps = record.steps
    if len(steps) < 2:
        return
    yield from (_pruned(record, steps[:number] + steps[number + 1 :]) for number in _unread(record))
    if record.points > 1:
        return
    computed = references.values(record)
    for number, step in enumerate(steps[:-1] if computed else []):
        sources = dict(record.sources)
        for name in step.outputs:
            value = computed[name]
            if isinstance(value, int) or value.is_complex():
                break  # the record has no such source
            dtype = str(value.dtype).removeprefix("torch.")
            sources[name] = Source("input", dtype, [list(value.shape)], values=[value.flatten().tolist()])
        else:
            yield _pruned(replace(record, sources=sources), steps[:number] + steps[number + 1 :])


def _unread(record: Record) -> list[int]:
    """The steps whose results nothing reads, the last first."""
    results = set(record.results)
    return [n for n, step in reversed(list(enumerate(record.steps))) if results.issuperset(step.outputs)]


def _pruned(record: Record, steps: list[Step]) -> Record:
    """A record with these steps, without sources that none of them reads."""
    read = {name for step in steps for name in names_in(step.args)}
    sources = {name: source for name, source in record.sources.items() if name in read}
    if not any(source.kind == "input" for source in sources.values()):
        extra = next((n for n, s in record.sources.items() if s.kind == "input"), None)
        sources |= {extra: record.sources[extra]} if extra else {}
    return Record(sources, steps, list(record.calls), record.note, record.methods)


def _fewer_arguments(record: Record) -> Iterator[Record]:
    from tests.differential.kernels import kernel

    for number, step in enumerate(record.steps):
        for parameter in kernel(step.kernel).parameters:
            if not parameter.required and parameter.name in step.args:
                args = {name: arg for name, arg in step.args.items() if name != parameter.name}
                yield _pruned(
                    record, [*record.steps[:number], replace(step, args=args), *record.steps[number + 1 :]]
                )


def _smaller_sizes(record: Record) -> Iterator[Record]:
    """One size becomes smaller wherever it appears, or in one tensor."""
    sizes = {size for source in record.sources.values() for size in source.shapes[0] if size > 1}
    names: list[list[str]] = [list(record.sources), *([name] for name in record.sources)]
    for size in sorted(sizes, reverse=True):
        for smaller in dict.fromkeys((1, 2, size // 2, size - 1)):
            if smaller < size:
                for group in names:
                    yield _resized(record, size, smaller, group)


def _resized(record: Record, size: int, smaller: int, names: list[str]) -> Record:
    sources = dict(record.sources)
    for name in names:
        source = sources[name]
        shape = [smaller if n == size else n for n in source.shapes[0]]
        if source.values is None:
            sources[name] = replace(source, shapes=[shape])
        elif shape != source.shapes[0]:
            cut = tensor_of(source, 0)[tuple(slice(n) for n in shape)]
            sources[name] = replace(source, shapes=[shape], values=[cut.flatten().tolist()])
    return replace(record, sources=sources)


def _plainer_numbers(record: Record) -> Iterator[Record]:
    for name, source in record.sources.items():
        if source.values is None:
            continue
        numbers = source.values[0]
        for plain in PLAIN:
            value: Any = bool(plain) if source.dtype == "bool" else plain
            if any(not _same(number, value) for number in numbers):
                yield _with_numbers(record, name, [value] * len(numbers))
        if 1 < len(numbers) <= 16:
            for place, number in enumerate(numbers):
                if not any(_same(number, plain) for plain in PLAIN):
                    yield _with_numbers(record, name, [*numbers[:place], 1, *numbers[place + 1 :]])


def _same(number: Any, plain: Any) -> bool:
    return number == plain and math.copysign(1, number) == 1


def _with_numbers(record: Record, name: str, numbers: list[Any]) -> Record:
    source = replace(record.sources[name], values=[numbers])
    return replace(record, sources={**record.sources, name: source})
