"""Local-metric search in other engines: what they need to know, as plain vectors.

``index_vectors()`` and ``query_vectors(X)`` of a fitted model turn the local metric into a search
for the largest inner product, which faiss, pgvector, LanceDB and most vector databases offer. For
an engine that knows Euclidean distance alone there is ``EuclideanReduction``.
"""

from plml.ops.reduction import EuclideanReduction

__all__ = ["EuclideanReduction"]
