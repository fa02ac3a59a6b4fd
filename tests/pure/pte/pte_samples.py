"""Small real files, exported by stock ExecuTorch, and a short way to make programs by hand."""

from pteron.pte import program_chunks, schema
from tests.support import DATA

FIXTURES = sorted(path.name for path in DATA.glob("*.pte"))


def to_bytes(program: schema.Program, segments: tuple[bytes, ...] = ()) -> bytes:
    return b"".join(program_chunks(program, segments))


def one_method(*values: object, **plan: object) -> schema.Program:
    """A program whose one method has these values."""
    values = tuple(schema.EValue(value) for value in values)
    return schema.Program(execution_plan=(schema.ExecutionPlan("forward", values=values, **plan),))


def calls(*instructions: object) -> tuple[schema.Chain, ...]:
    return (schema.Chain(instructions=tuple(map(schema.Instruction, instructions))),)
