"""Small numerical building blocks: projections, pair operators, exact top-k search."""
