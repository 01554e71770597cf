"""The engine for CUDA: Triton kernels."""
