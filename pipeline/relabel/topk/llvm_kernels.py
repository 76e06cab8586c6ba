"""Kernels in LLVM vector instructions: dot products in one fixed order, prefetching, and comparison of 64 scores.

A loop compiled by numba would keep the running sums in memory and count references to the arrays with every product,
which takes longer than the product. 64 low-precision scores are compared in a few instructions and without branches.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

LANES = 32  # running sums of a dot product: enough to keep the widest vector registers busy
_CACHE_LINE = 64  # bytes that the processor fetches together
_INT, _BYTE = ir.IntType(32), ir.IntType(8)
_FLOATS, _DOUBLES = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(ir.DoubleType(), LANES)
WORD_BITS = 64
_WORD = ir.IntType(WORD_BITS)


@intrinsic  # type: ignore[untyped-decorator]
def dot(typing: Any, vectors: Any, a: Any, b: Any) -> Any:  # noqa: ARG001
    """Return the dot product of rows a and b.

    Lane l sums the products of all d with ``d % LANES == l``, in ascending d. The lanes are then added in halves: lane
    l to lane ``l + LANES / 2``, and so on. The order depends on the width alone.

    `vectors`: (N, D) float32, C-contiguous.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        first, second, width = _row_pointers(context, builder, signature, values)
        # width = full + rest, where `full` is a multiple of LANES (a power of two).
        rest = builder.and_(width, ir.Constant(width.type, LANES - 1))
        full = builder.sub(width, rest)
        step = ir.Constant(width.type, LANES)
        sums = cgutils.alloca_once_value(builder, ir.Constant(_DOUBLES, [0.0] * LANES))
        # A product of two float32 numbers has at most 48 bits and is exact in float64. Fusing it with the addition
        # therefore gives the same bits as two instructions, on every processor.
        kind = ir.FunctionType(_DOUBLES, [_DOUBLES] * 3)
        fused = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f64")
        with cgutils.for_range_slice(builder, ir.Constant(width.type, 0), full, step, width.type) as (d, _):
            x, y = (_load_doubles(builder, row, d) for row in (first, second))
            builder.store(builder.call(fused, [x, y, builder.load(sums)]), sums)
        # The last D % LANES products go to the first lanes, one by one.
        with builder.if_then(cgutils.is_not_null(builder, rest)):
            # A copy of the sums: memory that is indexed cannot stay in a register, which the main loop needs.
            lanes = cgutils.alloca_once(builder, _DOUBLES)
            builder.store(builder.load(sums), lanes)
            lane = builder.bitcast(lanes, ir.DoubleType().as_pointer())
            with cgutils.for_range(builder, rest, intp=width.type) as loop:
                d = builder.add(full, loop.index)
                x, y = (builder.fpext(builder.load(builder.gep(row, [d])), ir.DoubleType()) for row in (first, second))
                target = builder.gep(lane, [loop.index])
                builder.store(builder.fadd(builder.load(target), builder.fmul(x, y)), target)
            builder.store(builder.load(lanes), sums)
        # Add the upper half of the lanes to the lower half until one is left: a fixed tree of additions.
        total, half = builder.load(sums), LANES // 2
        while half:
            low, high = (
                builder.shuffle_vector(
                    total, total, ir.Constant(ir.VectorType(_INT, half), list(range(start, start + half)))
                )
                for start in (0, half)
            )
            total, half = builder.fadd(low, high), half // 2
        return builder.extract_element(total, ir.Constant(_INT, 0))

    return types.float64(vectors, types.intp, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(typing: Any, vectors: Any, row: Any) -> Any:  # noqa: ARG001
    """Begin to load a row into the cache.

    Candidates lie at random places in memory, and waiting for one takes longer than multiplying it.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        start, width = _row_pointers(context, builder, signature, values)
        kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), _INT, _INT, _INT])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        # Arguments of llvm.prefetch: for reading (0), into all levels of cache (3), data rather than code (1).
        read, all_levels, data = (ir.Constant(_INT, x) for x in (0, 3, 1))
        # One request per cache line: 16 float32 numbers.
        zero, step = ir.Constant(width.type, 0), ir.Constant(width.type, _CACHE_LINE // 4)
        with cgutils.for_range_slice(builder, zero, width, step, width.type) as (d, _):
            line = builder.bitcast(builder.gep(start, [d]), _BYTE.as_pointer())
            builder.call(fetch, [line, read, all_levels, data])
        return context.get_dummy_value()

    return types.void(vectors, types.intp), generate


def _row_pointers(context: Any, builder: Any, signature: Any, values: Any) -> list[Any]:
    """Return LLVM pointers to the selected rows of the first argument, followed by the row length."""
    array = context.make_array(signature.args[0])(context, builder, values[0])
    width = builder.extract_value(array.shape, 1)
    # Rows are C-contiguous: row i begins i * width numbers after the first.
    return [*(builder.gep(array.data, [builder.mul(row, width)]) for row in values[1:]), width]


def _load_doubles(builder: Any, row: Any, start: Any) -> Any:
    """Load `LANES` float32 numbers of a row as float64."""
    pointer = builder.bitcast(builder.gep(row, [start]), _FLOATS.as_pointer())
    # Rows are aligned to one number only, hence align=4.
    return builder.fpext(builder.load(pointer, align=4), _DOUBLES)


@intrinsic  # type: ignore[untyped-decorator]
def mask_reaching(typing: Any, row: Any, start: Any, limit: Any) -> Any:  # noqa: ARG001
    """Compare the keys of ``row[start:start + 64]`` with one limit, or each with its own.

    The key of a score orders scores as integers (see `candidate_buffer.scan`).

    `row`: (n,) int16 or int32, C-contiguous; bits of scores. `start`: at most n - 64. `limit`: int, or (n,) of `row`'s
    dtype, C-contiguous. Returns uint64: bit j is set if ``row[start + j]`` reaches its limit.
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
