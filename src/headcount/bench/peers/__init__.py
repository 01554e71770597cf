"""What the engines are timed against: the loop of the paper in eager PyTorch, and JAX as an expert would write it."""
