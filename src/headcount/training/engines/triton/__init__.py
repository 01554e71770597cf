"""The engine for CUDA, with Triton kernels."""
