"""The key–query channel of Section 3: weights, scores, aggregation, and exact verification."""
