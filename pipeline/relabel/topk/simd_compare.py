"""Which of 64 screened scores reach a limit, as the bits of one number: a few instructions, none of them a branch."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

TOGETHER = 64
_WORD = ir.IntType(64)


@intrinsic  # type: ignore[untyped-decorator]
def reaching(typing: Any, row: Any, start: Any, limit: Any) -> Any:  # noqa: ARG001
    """Compare the keys (see `kept.scan`) of ``row[start:start + 64]`` with a limit, or each with its own.

    Parameters
    ----------
    row : (n,) int16 or int32, C-contiguous
        Bits of scores.
    start : int
        At most n - 64.
    limit : int, or (n,) of `row`'s dtype, C-contiguous

    Returns
    -------
    uint64
        Bit j says whether ``row[start + j]`` reaches its limit.
    """
    kind = row.dtype
    own = isinstance(limit, types.Array)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        number = ir.IntType(kind.bitwidth)
        some = ir.VectorType(number, TOGETHER)

        def load(array_type: Any, array: Any) -> Any:
            data = context.make_array(array_type)(context, builder, array).data
            at = builder.bitcast(builder.gep(data, [values[1]]), some.as_pointer())
            return builder.load(at, align=kind.bitwidth // 8)

        def each(value: int) -> Any:
            return ir.Constant(some, [value] * TOGETHER)

        bits = load(signature.args[0], values[0])
        sign = builder.ashr(bits, each(kind.bitwidth - 1))
        keys = builder.xor(bits, builder.and_(sign, each((1 << (kind.bitwidth - 1)) - 1)))
        if own:
            limits = load(signature.args[2], values[2])
        else:
            one = builder.insert_element(ir.Constant(some, ir.Undefined), values[2], ir.Constant(ir.IntType(32), 0))
            places = ir.Constant(ir.VectorType(ir.IntType(32), TOGETHER), [0] * TOGETHER)
            limits = builder.shuffle_vector(one, ir.Constant(some, ir.Undefined), places)
        return builder.bitcast(builder.icmp_signed(">=", keys, limits), _WORD)

    return types.uint64(row, types.intp, limit if own else kind), generate


@intrinsic  # type: ignore[untyped-decorator]
def lowest_bit(typing: Any, word: Any) -> Any:  # noqa: ARG001
    """Position of the lowest bit that is set, of a number other than 0."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        return builder.cttz(values[0], ir.Constant(ir.IntType(1), 1))

    return types.intp(types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def as_float(typing: Any, bits: Any) -> Any:  # noqa: ARG001
    """Read the float32 that has these lowest 32 bits."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        return builder.bitcast(builder.trunc(values[0], ir.IntType(32)), ir.FloatType())

    return types.float32(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def as_bits(typing: Any, number: Any) -> Any:  # noqa: ARG001
    """Read the bits of a float32, as of an int32."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        return builder.sext(builder.bitcast(values[0], ir.IntType(32)), ir.IntType(64))

    return types.int64(types.float32), generate
