"""A callback for scikit-learn's protocol."""


class Recorder:
    """Keeps what it is told, and stops after so many iterations of a stage."""

    max_propagation_depth = None

    def __init__(self, stop_after=None):
        self.stop_after = stop_after
        self.seen, self.begun, self.ended = [], [], []

    def setup(self, estimator, context):
        self.begun.append("setup")

    def teardown(self, estimator, context):
        self.ended.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.begun.append(context.task_name)

    def on_fit_task_end(self, estimator, context, *, metadata=None):
        self.ended.append(context.task_name)
        if context.task_name != "iteration":
            return False
        self.seen.append((context.parent.task_name, metadata))
        return self.stop_after is not None and metadata["iteration"] >= self.stop_after
