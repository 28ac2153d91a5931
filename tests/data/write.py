"""Writes the model files of format 1 that must load forever. Run once, with plml 0.1.0."""

import json
from pathlib import Path

import pandas as pd
from sklearn.datasets import load_iris
from sklearn.preprocessing import scale

import plml
from plml.cli import main

FOLDER = Path(__file__).parent

if __name__ == "__main__":
    X, y = load_iris(return_X_y=True)
    X, y = scale(X)[::2], y[::2]
    models = {"plml": plml.PLML(n_bases=3, random_state=0), "kernelsvm": plml.KernelSVM(Cs=(1.0,))}
    for name, model in models.items():
        plml.save(model.fit(X, y), FOLDER / f"{name}-format-1.skops")
        (FOLDER / f"{name}-format-1.json").write_text(json.dumps(model.predict(X).tolist()))
    table = pd.DataFrame(X.round(2), columns=["a", "b", "c", "d"])
    table["colour"] = ["red" if i % 3 else "blue" for i in range(len(table))]
    table["kind"] = [f"kind {label}" for label in y]
    table.to_csv(FOLDER / "table.csv", index=False)
    saved = str(FOLDER / "table-format-1.skops")
    main(["fit", str(FOLDER / "table.csv"), "--target", "kind", "-o", saved, "--bases", "3"])
    out = str(FOLDER / "table-format-1.csv")
    main(["predict", saved, str(FOLDER / "table.csv"), "-o", out])
