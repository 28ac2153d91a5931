"""Checks of scikit-learn that neighbours do not pass, with the reason in words."""

#: Why a weight of two is not two rows, whatever the data.
TWICE = "check_sample_weight_equivalence_on_dense_data"
PLACES = (
    "a repeated row is the nearest neighbour of its copy: it takes places among targets, in the "
    "graph, in the neighbourhood and in the vote that a row of weight two does not take"
)
#: Why a class of overwhelming weight is not predicted everywhere.
RULES = "check_class_weight_classifiers"
VOTES = (
    "class weights are what the metric is learned for; a vote of the nearest case, or of cases "
    "with one vote each, stays what it is (weigh_votes)"
)
NOT_FOR_NEIGHBOURS = {TWICE: PLACES, RULES: VOTES}
