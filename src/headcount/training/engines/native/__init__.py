"""The engine for CPUs: C++ kernels behind ctypes."""
