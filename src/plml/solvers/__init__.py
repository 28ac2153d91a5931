"""First-order and quasi-Newton solvers with certified stopping. They know nothing of metrics."""
