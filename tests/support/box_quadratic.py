"""A box-constrained quadratic whose solution a convex solver knows."""

import cvxpy as cp
import numpy as np

from plml.ops.projections import project_box
from plml.solvers.problem import Evaluation


class BoxQuadratic:
    """min x^T A x / 2 - b^T x over [0, 1]^n, certified by its Frank-Wolfe gap."""

    def __init__(self, A, b):
        self.A, self.b = A, b
        self.n_evaluations = 0

    def project(self, x):
        return project_box(x)

    def evaluate(self, x):
        self.n_evaluations += 1
        Ax = self.A @ x
        return Evaluation(float(0.5 * x @ Ax - self.b @ x), Ax)

    def gradient(self, evaluation):
        return evaluation.cache - self.b

    def gap(self, x, evaluation, gradient):
        return float(gradient @ x - np.minimum(gradient, 0).sum()) / max(
            abs(evaluation.value), 1e-3
        )


def optimum(problem):
    x = cp.Variable(20)
    objective = 0.5 * cp.quad_form(x, cp.psd_wrap(problem.A)) - problem.b @ x
    return cp.Problem(cp.Minimize(objective), [x >= 0, x <= 1]).solve(solver=cp.CLARABEL)
