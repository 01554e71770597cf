"""Speed as a ratio: engines, blocks, verification and the compiler against their peers in one run."""
