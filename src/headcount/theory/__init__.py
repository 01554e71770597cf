"""What the paper proves: bounds, noise and incoherence, laws, and the planner built on them."""
