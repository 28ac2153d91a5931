"""The paper in the order in which data flow, as pure functions: arrays in, arrays out.

graph -> anchors -> weights (stage 1) -> triplets -> metrics (stage 2) -> search (prediction)
"""
