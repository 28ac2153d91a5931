"""The surroundings of a computation, which never change its result."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from plml.backend.arrays import no_autocast, working_memory
from plml.backend.progress import plan, solver_stage, stage, work
from plml.backend.threads import limit_threads
from plml.solvers.problem import NO_CHECKPOINT, Callback, Checkpointer
from plml.stages.earlier import Earlier


def _unobserved(name: str, show: Callback) -> AbstractContextManager[Callback]:
    return nullcontext(show)


@dataclass(frozen=True)
class Run:
    """Checkpoint, callbacks, progress, threads and memory of one fit, or of one prediction."""

    checkpoint: Checkpointer = NO_CHECKPOINT
    #: From a stage and the callback that shows progress to a context with that of its solver.
    observe: Callable[[str, Callback], AbstractContextManager[Callback]] = _unobserved
    n_jobs: int | None = None  # threads; None leaves their number as it is
    memory: float | None = None  # MiB for temporary arrays
    verbose: int = 0  # progress is shown if above zero
    earlier: Earlier | None = None  # what an earlier fit left to start from

    def plan(self, seconds: Mapping[str, float]) -> None:
        """Announce the stages, and roughly how long each takes."""
        plan(dict(seconds))

    def stage(self, name: str) -> AbstractContextManager[object]:
        """A stage of the plan."""
        return stage(name)

    @contextmanager
    def solver(self, name: str, tol: float, max_iter: int) -> Iterator[Callback]:
        """A stage that is a solver; yields the callback that it calls at its iterates."""
        with solver_stage(name, tol, max_iter) as show, self.observe(name, show) as callback:
            yield callback

    @contextmanager
    def limits(self) -> Iterator[None]:
        """Apply the limits on threads and memory."""
        with limit_threads(self.n_jobs), working_memory(self.memory), no_autocast():
            yield

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Apply the limits, and show the progress if wanted."""
        with self.limits(), work(self.verbose):
            yield
