"""The smallest certified weights for a given graph and table: beyond the paper."""
