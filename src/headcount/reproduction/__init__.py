"""The paper measured again: presets, their training, evidence, and shipped results."""
