"""The order of the gallery: first whether a local metric pays, then predictions, then the model."""

ORDER = (
    "plot_one_or_many.py",
    "plot_does_it_help.py",
    "plot_explanation.py",
    "plot_neighbors.py",
    "plot_importance.py",
    "plot_local_metrics.py",
    "plot_weights.py",
    "plot_convergence.py",
)


def place(example: str) -> int:
    """Where an example stands."""
    return ORDER.index(example)
