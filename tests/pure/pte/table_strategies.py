"""Hypothesis strategies for any `@table` class, made from the annotations that the codec itself reads."""

import types
from dataclasses import fields
from enum import IntEnum
from functools import cache
from struct import calcsize
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

_MAX_ITEMS = 3


@cache
def records(cls: type) -> st.SearchStrategy[Any]:
    """Instances of `cls`. Every field may have any value of its wire type."""
    hints = get_type_hints(cls, include_extras=True)
    return st.builds(cls, **{field.name: _values(hints[field.name]) for field in fields(cls)})


def _values(hint: Any) -> st.SearchStrategy[Any]:
    origin = get_origin(hint)
    if origin is Annotated:
        return _scalars(*get_args(hint))
    if origin in (Union, types.UnionType):
        return st.one_of([_values(member) for member in get_args(hint)])
    if origin is tuple:
        return st.lists(_values(get_args(hint)[0]), max_size=_MAX_ITEMS).map(tuple)
    plain = {
        types.NoneType: st.none(),
        bool: st.booleans(),
        str: st.text(max_size=8),
        memoryview: st.binary(max_size=20).map(memoryview),
    }
    return plain[hint] if hint in plain else records(hint)


def _scalars(python_type: type, code: str) -> st.SearchStrategy[Any]:
    if issubclass(python_type, IntEnum):
        return st.sampled_from(python_type)
    if python_type is float:
        return st.floats(allow_nan=False)
    bits = 8 * calcsize("<" + code)
    low = 0 if code.isupper() else -(2 ** (bits - 1))
    return st.integers(low, low + 2**bits - 1)
