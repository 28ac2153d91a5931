"""The paper in the order data flows, as pure functions: arrays in, arrays out.

graph -> anchors -> weights (stage 1) -> triplets -> metrics (stage 2) -> search (prediction)
"""
