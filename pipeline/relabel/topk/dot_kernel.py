"""Dot products of rows in one fixed order of additions, and rows fetched before they are needed.

Written as instructions on vectors: a compiled loop would keep the running sums in memory and count references to arrays
with every product, which takes longer than the product.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

LANES = 32  # running sums of a dot product: enough to keep the widest vector registers busy
_LINE = 64  # bytes that the processor fetches at once
_INT, _BYTE = ir.IntType(32), ir.IntType(8)
_FLOATS, _DOUBLES = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(ir.DoubleType(), LANES)


@intrinsic  # type: ignore[untyped-decorator]
def dot(typing: Any, vectors: Any, a: Any, b: Any) -> Any:  # noqa: ARG001
    """Sum the products of rows a and b: one running sum for every d modulo `LANES`, then halves added to halves.

    Parameters
    ----------
    vectors : (N, D) float32, C-contiguous
    a, b : int

    Returns
    -------
    float64
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        first, second, width = _rows(context, builder, signature, values)
        rest = builder.and_(width, ir.Constant(width.type, LANES - 1))
        whole = builder.sub(width, rest)
        step = ir.Constant(width.type, LANES)
        sums = cgutils.alloca_once_value(builder, ir.Constant(_DOUBLES, [0.0] * LANES))
        kind = ir.FunctionType(_DOUBLES, [_DOUBLES] * 3)
        fused = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f64")
        with cgutils.for_range_slice(builder, ir.Constant(width.type, 0), whole, step, width.type) as (d, _):
            x, y = (_widened(builder, row, d) for row in (first, second))
            builder.store(builder.call(fused, [x, y, builder.load(sums)]), sums)
        with builder.if_then(cgutils.is_not_null(builder, rest)):
            lanes = cgutils.alloca_once(builder, _DOUBLES)  # of its own: what is indexed stays in no register
            builder.store(builder.load(sums), lanes)
            lane = builder.bitcast(lanes, ir.DoubleType().as_pointer())
            with cgutils.for_range(builder, rest, intp=width.type) as loop:
                at = builder.add(whole, loop.index)
                x, y = (builder.fpext(builder.load(builder.gep(row, [at])), ir.DoubleType()) for row in (first, second))
                one = builder.gep(lane, [loop.index])
                builder.store(builder.fadd(builder.load(one), builder.fmul(x, y)), one)
            builder.store(builder.load(lanes), sums)
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
    """Begin to fetch a row: rows lie all over memory, and waiting for one takes longer than to multiply it."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        start, width = _rows(context, builder, signature, values)
        kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), _INT, _INT, _INT])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, everywhere, data = (ir.Constant(_INT, x) for x in (0, 3, 1))
        zero, step = ir.Constant(width.type, 0), ir.Constant(width.type, _LINE // 4)
        with cgutils.for_range_slice(builder, zero, width, step, width.type) as (d, _):
            line = builder.bitcast(builder.gep(start, [d]), _BYTE.as_pointer())
            builder.call(fetch, [line, read, everywhere, data])
        return context.get_dummy_value()

    return types.void(vectors, types.intp), generate


def _rows(context: Any, builder: Any, signature: Any, values: Any) -> list[Any]:
    """Where rows of the first argument begin, those that the other arguments number; and how long they are."""
    array = context.make_array(signature.args[0])(context, builder, values[0])
    width = builder.extract_value(array.shape, 1)
    return [*(builder.gep(array.data, [builder.mul(row, width)]) for row in values[1:]), width]


def _widened(builder: Any, row: Any, start: Any) -> Any:
    """Load `LANES` numbers of a row as float64."""
    at = builder.bitcast(builder.gep(row, [start]), _FLOATS.as_pointer())
    return builder.fpext(builder.load(at, align=4), _DOUBLES)
