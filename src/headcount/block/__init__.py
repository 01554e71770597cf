"""The transformer block of Section 7.3: the model, and training for stacks of it."""
