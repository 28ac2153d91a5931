"""The largest inner products on a GPU: half precision proposes, float32 decides.

Products in half precision take a tenth of the time and half of the memory. Each is off by at most a
known bound, so rows that half precision ranks far below the wanted ones cannot be among them. The
others are multiplied again in float32. Where the bound leaves that open, float32 searches.
"""

from collections.abc import Callable

from plml.backend.arrays import (
    Array,
    at_columns,
    device,
    is_on_gpu,
    largest_of_rows,
    namespace,
    row_dot,
)
from plml.backend.fused import dots_of_pairs

#: Queries and vectors from which it pays.
_QUERIES_FROM, _VECTORS_FROM = 64, 2**14
#: Sides of the factors are multiples of this, for the tensor cores.
_ALIGNED = 8
_ROUNDOFF_16 = 2.0**-11
_ROUNDOFF_32 = 2.0**-24


def halves_pay(queries: Array, vectors: Array) -> bool:
    """Whether half precision saves time here."""
    return is_on_gpu(queries) and len(queries) >= _QUERIES_FROM and len(vectors) >= _VECTORS_FROM


def n_proposals(k: int, n: int) -> int:
    """How many of n rows are multiplied again."""
    return min(n, 2 * k + 64)


def rounding_of_halves(d: int) -> float:
    """How far a product of d terms is off, for vectors of unit length.

    Two factors, the sum of partial sums and the result are rounded to half precision, numbers close
    to zero to 2^-25; sums in float32 may be cut off instead of rounded.
    """
    return 6.0 * _ROUNDOFF_16 + 4.0 * (d + 3) * _ROUNDOFF_32


def largest_by_halves(
    queries: Array,
    vectors: Array,
    k: int,
    blocks: list[slice],
    search: Callable[[Array], tuple[Array, Array]],
) -> tuple[Array, Array]:
    """The k largest float32 inner products and their indices, (q, k) both, largest first.

    Nothing that is left out has a larger product than the last one.

    Parameters
    ----------
    queries, vectors : (q, D) and (n, D) float32 arrays; queries of at most unit length
    k : int
    blocks : of the queries
    search : the float32 search, for some of the queries
    """
    xp, place, n = namespace(queries), device(queries), len(vectors)
    scores = xp.empty((len(queries), k), dtype=xp.float32, device=place)
    indices = xp.empty((len(queries), k), dtype=xp.int64, device=place)
    missed = xp.empty(len(queries), dtype=xp.float32, device=place)  # bounds what is left out
    half_queries, half_vectors = _aligned(queries), _aligned(vectors)
    longest = xp.clip(xp.sqrt(xp.max(row_dot(vectors, vectors))), 1.0, None)
    rounding = rounding_of_halves(queries.shape[1]) * longest
    for block in blocks:
        rough = half_queries[block] @ half_vectors.T
        rough[:, n:] = -xp.inf
        near = largest_of_rows(rough, n_proposals(k, n))
        last = at_columns(rough, near[:, -1:])[:, 0]
        missed[block] = xp.astype(last, xp.float32) + rounding
        rows = xp.repeat(xp.arange(len(near), device=place), near.shape[1])
        products = dots_of_pairs(queries[block], vectors, rows, xp.reshape(near, (-1,)))
        products = xp.reshape(products, near.shape)
        best = largest_of_rows(products, k)
        scores[block] = at_columns(products, best)
        indices[block] = at_columns(near, best)
    if n_proposals(k, n) < n:
        open_ = xp.nonzero(~(scores[:, -1] > missed))[0]
        if len(open_):
            scores[open_], indices[open_] = search(queries[open_])
    return scores, indices


def _aligned(x: Array) -> Array:
    """In half precision, with rows and columns of zeros up to a multiple of eight."""
    xp = namespace(x)
    shape = tuple(-(-side // _ALIGNED) * _ALIGNED for side in x.shape)
    result = xp.zeros(shape, dtype=xp.float16, device=device(x))
    result[: x.shape[0], : x.shape[1]] = xp.astype(x, xp.float16)
    return result
