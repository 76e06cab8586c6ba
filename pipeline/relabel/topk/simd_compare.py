"""Comparison of 64 low-precision scores with a limit in a few instructions and without branches."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

WORD_BITS = 64
_WORD = ir.IntType(WORD_BITS)


@intrinsic  # type: ignore[untyped-decorator]
def mask_reaching(typing: Any, row: Any, start: Any, limit: Any) -> Any:  # noqa: ARG001
    """Compare the keys of ``row[start:start + 64]`` with one limit, or each with its own.

    The key of a score orders scores as integers (see `candidate_buffer.scan`).

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
        Bit j is set if ``row[start + j]`` reaches its limit.
    """
    kind = row.dtype
    limit_per_score = isinstance(limit, types.Array)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        number = ir.IntType(kind.bitwidth)
        vector = ir.VectorType(number, WORD_BITS)

        def load(array_type: Any, array: Any) -> Any:
            # 64 numbers from `start` on, aligned to one number only.
            data = context.make_array(array_type)(context, builder, array).data
            pointer = builder.bitcast(builder.gep(data, [values[1]]), vector.as_pointer())
            return builder.load(pointer, align=kind.bitwidth // 8)

        def repeat(value: int) -> Any:
            return ir.Constant(vector, [value] * WORD_BITS)

        bits = load(signature.args[0], values[0])
        # Key of a score: its bits if it is not negative, otherwise its bits with all but the sign inverted. The
        # arithmetic shift yields all ones for a negative number, so no branch is needed.
        sign = builder.ashr(bits, repeat(kind.bitwidth - 1))
        keys = builder.xor(bits, builder.and_(sign, repeat((1 << (kind.bitwidth - 1)) - 1)))
        if limit_per_score:
            limits = load(signature.args[2], values[2])
        else:
            # Broadcast the one limit: insert it into lane 0 and shuffle lane 0 into every lane.
            single = builder.insert_element(
                ir.Constant(vector, ir.Undefined), values[2], ir.Constant(ir.IntType(32), 0)
            )
            lane_zero = ir.Constant(ir.VectorType(ir.IntType(32), WORD_BITS), [0] * WORD_BITS)
            limits = builder.shuffle_vector(single, ir.Constant(vector, ir.Undefined), lane_zero)
        # 64 comparisons of one bit each are one word.
        return builder.bitcast(builder.icmp_signed(">=", keys, limits), _WORD)

    return types.uint64(row, types.intp, limit if limit_per_score else kind), generate


@intrinsic  # type: ignore[untyped-decorator]
def lowest_bit(typing: Any, word: Any) -> Any:  # noqa: ARG001
    """Return the position of the lowest bit that is set in a word other than 0."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        # The constant 1 declares the result undefined for 0, which saves an instruction.
        return builder.cttz(values[0], ir.Constant(ir.IntType(1), 1))

    return types.intp(types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def as_float(typing: Any, bits: Any) -> Any:  # noqa: ARG001
    """Return the float32 that the lowest 32 bits encode."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        return builder.bitcast(builder.trunc(values[0], ir.IntType(32)), ir.FloatType())

    return types.float32(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def as_bits(typing: Any, number: Any) -> Any:  # noqa: ARG001
    """Return the bits of a float32, read as an int32."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        return builder.sext(builder.bitcast(values[0], ir.IntType(32)), ir.IntType(64))

    return types.int64(types.float32), generate
