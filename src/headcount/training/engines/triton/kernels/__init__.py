"""Triton kernels of a fleet. Triton reads their source itself: plain functions, no type hints."""
