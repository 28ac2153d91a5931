"""The picture at the top of the README, drawn by an example of the gallery.

``python docs/pictures.py [--out docs/images]``
"""

import argparse
import runpy
from pathlib import Path

import matplotlib

EXAMPLE = Path(__file__).parents[1] / "examples" / "plot_one_or_many.py"


def main() -> None:
    """Run the example and save its figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "images")
    out = parser.parse_args().out
    matplotlib.use("Agg")
    figure = runpy.run_path(str(EXAMPLE))["figure"]
    figure.savefig(out / "one-or-many.png", dpi=110)


if __name__ == "__main__":
    main()
