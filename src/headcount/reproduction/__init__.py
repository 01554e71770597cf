"""The paper measured again: presets, shipped results, evidence, and `reproduce`."""
