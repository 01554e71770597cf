"""The JAX peer: `vmap` over runs, `lax.scan` over steps, one jitted call on predrawn contexts.

Run as a module it is a worker that times itself: it reads a setup as one JSON line, answers when it
has compiled, and then answers every further line with the seconds of one call.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from headcount.bench.shapes import Shape
from headcount.shapes import Float, Int
from headcount.training.engines.base import BETAS, EPSILON, State, adam_scales
from headcount.training.spec import RunSpec

_jax: Any = None  # loaded on first use: it is an optional dependency


def load_jax() -> Any:
    """The jax module, with float32 products in full precision."""
    global _jax
    if _jax is None:
        _jax = import_module("jax")
        _jax.config.update("jax_default_matmul_precision", "highest")
    return _jax


def packed(
    spec: RunSpec, states: list[State]
) -> tuple[Float[np.ndarray, "runs d_model columns"], Float[np.ndarray, " runs"]]:
    """Weights as one matrix per run, [W_Q W_K], so that both projections are one product; and τ."""
    columns = [
        state.weights.transpose(0, 1).reshape(spec.d_model, 2 * spec.budget).numpy()
        for state in states
    ]  # [2·heads, d_model, key_dim] → [d_model, 2·heads·key_dim]
    return np.stack(columns), np.array(
        [float(state.threshold[0]) for state in states], dtype=np.float32
    )


def unpacked(
    spec: RunSpec, columns: Float[np.ndarray, "runs d_model columns"]
) -> Float[np.ndarray, "runs 2 heads d_model key_dim"]:
    """`packed` undone, for the weights."""
    shape = (len(columns), spec.d_model, 2, spec.heads, spec.key_dim)
    return columns.reshape(shape).transpose(0, 2, 3, 1, 4)


def scan_steps(spec: RunSpec) -> Callable[..., Any]:
    """(state, rows, targets, contexts, scales) → state after all steps of all runs.

    The state is (parameters, first moments, second moments), each a pair (packed weights, τ). The
    old state is donated: XLA updates it in place.
    """
    jax = load_jax()
    jnp, (beta1, beta2) = jax.numpy, BETAS

    def loss(parameters: Any, rows: Any, targets: Any, context: Any) -> Any:
        weights, threshold = parameters
        projected = (rows[context] @ weights).reshape(spec.length, 2, spec.heads, spec.key_dim)
        scores = jnp.einsum("phk,qhk->hpq", projected[:, 0], projected[:, 1]).max(0)
        positive = targets[context][:, None] == context[None, :]
        logits = spec.sharpness * (scores - threshold)
        losses = jax.nn.softplus(jnp.where(positive, -logits, logits))
        return jnp.mean(losses * jnp.where(positive, spec.length - 1.0, 1.0))

    gradient = jax.vmap(jax.grad(loss))

    def run(state: Any, rows: Any, targets: Any, contexts: Any, scales: Any) -> Any:
        def step(state: Any, inputs: Any) -> Any:
            (parameters, first, second), (context, scale) = state, inputs
            slope = gradient(parameters, rows, targets, context)
            first = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, first, slope)
            second = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, second, slope)
            parameters = jax.tree.map(
                lambda w, m, v: w - scale[0] * m / (jnp.sqrt(v) * scale[1] + EPSILON),
                parameters,
                first,
                second,
            )
            return (parameters, first, second), None

        return jax.lax.scan(step, state, (contexts, scales))[0]

    return jax.jit(run, donate_argnums=0)


def begin(spec: RunSpec, states: list[State]) -> Any:
    """The state that `scan_steps` takes, before the first step."""
    jnp = load_jax().numpy
    weights, threshold = packed(spec, states)
    zeros = [(jnp.zeros(weights.shape), jnp.zeros(threshold.shape)) for _ in range(2)]
    return ((jnp.array(weights), jnp.array(threshold)), *zeros)


def drawn(
    specs: list[RunSpec], steps: int
) -> tuple[
    Float[np.ndarray, "runs items d_model"],
    Int[np.ndarray, "runs items"],
    Int[np.ndarray, "{steps} runs length"],
]:
    """Embeddings, targets and first training contexts of every run, as the scan takes them."""
    from headcount.problem.contexts import ContextSampler
    from headcount.problem.embeddings import gaussian_embeddings
    from headcount.problem.makers import permutation_graph

    rows, targets, contexts = {}, {}, {}
    for spec in dict.fromkeys(specs):
        graph = permutation_graph(spec.items, spec.seed)
        sampler = ContextSampler(graph, spec.length, spec.rate)
        rows[spec] = gaussian_embeddings(spec.items, spec.d_model, spec.seed).numpy()
        targets[spec] = graph.targets.astype(np.int32)
        contexts[spec] = (
            sampler.draw(steps, seed=spec.seed, stream=spec.stream).numpy().astype(np.int32)
        )
    parts = ([part[spec] for spec in specs] for part in (rows, targets, contexts))
    return np.stack(next(parts)), np.stack(next(parts)), np.stack(next(parts), 1)


def work(setup: dict[str, Any]) -> None:
    """Answer lines on standard input until it ends."""
    if setup["device"] == "cpu" and hasattr(os, "sched_setaffinity"):  # XLA then sees one core
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    jax = load_jax()
    specs = Shape(*setup["shape"]).specs(setup["runs"])
    call, state = scan_steps(specs[0]), begin(specs[0], [State.initial(spec) for spec in specs])
    inputs = [jax.device_put(part) for part in drawn(specs, setup["steps"])]
    taken = 0

    def seconds() -> float:
        nonlocal state, taken
        scales = jax.device_put(adam_scales(specs[0].learning_rate, taken, setup["steps"]))
        began = time.perf_counter()
        state = jax.block_until_ready(call(state, *inputs, scales))
        taken += setup["steps"]
        return time.perf_counter() - began

    seconds()  # compiles
    print(json.dumps({"jax": jax.__version__, "platform": jax.devices()[0].platform}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"seconds": seconds()}), flush=True)


if __name__ == "__main__":
    work(json.loads(sys.stdin.readline()))
