"""
Which features matter, and where?
=================================

A single metric gives every feature one weight. A local metric gives it different weights in
different parts of the data. Every panel shows the wines on the same two principal components,
coloured by the importance of one feature: its share in what sets the classes apart at that point.
The panels show the features with the largest shares overall.
"""

from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from plml import PLML
from plml.inspection import ImportanceDisplay

X, y = load_wine(return_X_y=True, as_frame=True)
X = StandardScaler().set_output(transform="pandas").fit_transform(X)
model = PLML(n_bases=5, random_state=0).fit(X, y)
ImportanceDisplay.from_estimator(model)
