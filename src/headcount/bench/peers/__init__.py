"""What the engines are timed against: eager PyTorch, and JAX as an expert would write it."""
