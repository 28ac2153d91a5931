"""Work on a GPU in few launches: many kernels as one graph, and kernels of our own where they can
be compiled.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from plml.backend.arrays import Array, is_on_gpu


class Repeated:
    """Work that is done many times; where x is on a GPU, from the second time on in one launch.

    The work reads and writes arrays that stay where they are, and never waits for the device. The
    first time sets the libraries up that it uses.
    """

    def __init__(self, work: Callable[[], None], x: Array) -> None:
        self._work, self._x = work, x
        self._done_before = False

    def __call__(self) -> None:
        if self._done_before and is_on_gpu(self._x):
            self._work = _recorded(self._work, self._x)
            self._x = None
        self._done_before = True
        self._work()


class Replayed:
    """A function of arrays of one shape; on a GPU, from the second time on in one launch.

    The work of the function never waits for the device.
    """

    def __init__(self, function: Callable[[Array], Array]) -> None:
        self._function = function
        self._call: _Call | None = None
        self._repeated: Repeated | None = None

    def __call__(self, x: Array) -> Array:
        if not is_on_gpu(x):
            return self._function(x)
        if self._call is None or self._repeated is None:
            self._call = _Call(self._function, x.clone())
            self._repeated = Repeated(self._call, x)
        self._call.given.copy_(x)
        self._repeated()
        return self._call.found.clone()


class _Call:
    """A function with what it is given and what it finds, which stay where they are."""

    def __init__(self, function: Callable[[Array], Array], given: Array) -> None:
        self._function, self.given = function, given
        self.found: Array = None

    def __call__(self) -> None:
        self.found = self._function(self.given)


def _recorded(work: Callable[[], None], x: Array) -> Callable[[], None]:
    import torch

    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(x.device)
    stream.wait_stream(torch.cuda.current_stream(x.device))
    with torch.cuda.device(x.device), torch.cuda.stream(stream):
        # Other threads may use the device meanwhile.
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            work()
        finally:
            graph.capture_end()
    return graph.replay


@cache
def can_compile(device: Any) -> bool:
    """Whether ``plml.backend.kernels`` works on a GPU: it needs Triton, and Triton a C compiler."""
    import torch

    try:
        from plml.backend.kernels import simplex_rows

        simplex_rows(torch.zeros((1, 1), device=device))
    except Exception:  # of whatever kind: everything can be done without kernels of our own
        return False
    return True
