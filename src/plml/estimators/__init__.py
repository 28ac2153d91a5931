"""scikit-learn classifiers: validation and state here, the mathematics in the stages."""
