"""Training runs: spec, task, objective, stopping rule, and the engines that run them."""
