"""The JAX peer: `vmap` over runs, `lax.scan` over steps, one jitted call on predrawn contexts.

Run as a module it is a worker that times itself: it reads a setup as one JSON line, answers when it
has compiled, and then answers every further line with the seconds of one call.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from headcount.bench.cases import Case
from headcount.shapes import Float, Int
from headcount.training.adamw import BETAS, EPSILON
from headcount.training.engines.base import State, adam_scales
from headcount.training.spec import RunSpec, is_content_hash

_jax: Any = None  # loaded on first use: it is an optional dependency


def load_jax() -> Any:
    """The jax module, with float32 products in full precision."""
    global _jax
    if _jax is None:
        _jax = import_module("jax")
        _jax.config.update("jax_default_matmul_precision", "highest")
    return _jax


def packed(
    states: list[State],
) -> tuple[Float[np.ndarray, "runs d_model columns"], Float[np.ndarray, " runs"]]:
    """Weights as one matrix per run, [W_Q W_K], so that both projections are one product; and τ."""
    columns = [state.weights.transpose(0, 1).flatten(1).numpy() for state in states]
    thresholds = [float(state.threshold[0]) for state in states]
    return np.stack(columns), np.array(thresholds, dtype=np.float32)


def unpacked(
    spec: RunSpec, columns: Float[np.ndarray, "runs d_model columns"]
) -> Float[np.ndarray, "runs matrices d_model key_dim"]:
    """`packed` undone, for the weights."""
    shape = (len(columns), spec.d_model, -1, spec.key_dim)
    return columns.reshape(shape).transpose(0, 2, 1, 3)


def _joined(spec: RunSpec, projected: Any) -> Any:
    """The scores of a context, joined across heads as the variant says."""
    jax = load_jax()
    shared = spec.heads // spec.key_heads
    queries = projected[:, : spec.budget].reshape(-1, spec.key_heads, shared, spec.key_dim)
    keys = projected[:, spec.budget :].reshape(-1, spec.key_heads, spec.key_dim)
    scores = jax.numpy.einsum("pgrk,qgk->grpq", queries, keys)
    scores = scores.reshape(spec.heads, spec.length, spec.length)
    match spec.variant:
        case "max" | "value":
            return scores.max(0)
        case "sum":
            return scores.sum(0)
        case "logsumexp":
            return spec.temperature * jax.nn.logsumexp(scores / spec.temperature, 0)
        case "softmax":
            return jax.nn.softmax(scores / math.sqrt(spec.key_dim), -1).sum(0)


def _loss(spec: RunSpec, parameters: Any, problem: dict[str, Any], context: Any) -> Any:
    """The loss of one run on one context of a permutation."""
    jax = load_jax()
    jnp, (weights, threshold) = jax.numpy, parameters
    joined = _joined(spec, problem["rows"][context] @ weights)
    positive = problem["targets"][context][:, None] == context[None, :]
    if spec.variant == "value":
        valid = positive.any(1, keepdims=True)
        error = jnp.where(valid, joined - positive, 0.0) @ problem["messages"][context]
        return jnp.sum(error**2) / jnp.maximum(valid.sum(), 1)
    logits = spec.sharpness * (joined - threshold)
    losses = jax.nn.softplus(jnp.where(positive, -logits, logits))
    return jnp.mean(losses * jnp.where(positive, spec.length - 1.0, 1.0))


def scan_steps(spec: RunSpec) -> Callable[..., Any]:
    """(state, problem, contexts, scales) → state after all steps of all runs.

    The state is (parameters, first moments, second moments), each a pair (packed weights, τ). The
    old state is donated: XLA updates it in place. `problem` is what `drawn` gives.
    """
    jax = load_jax()
    jnp, (beta1, beta2) = jax.numpy, BETAS

    def run(state: Any, problem: dict[str, Any], contexts: Any, scales: Any) -> Any:
        # A table of one's own is one for all runs.
        axes = {
            name: None if part.ndim == 2 and name == "rows" else 0 for name, part in problem.items()
        }
        gradient = jax.vmap(jax.grad(partial(_loss, spec)), in_axes=(0, axes, 0))

        def step(state: Any, inputs: Any) -> Any:
            (parameters, first, second), (context, scale) = state, inputs
            slope = gradient(parameters, problem, context)
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


def begin(states: list[State]) -> Any:
    """The state that `scan_steps` takes, before the first step."""
    jnp = load_jax().numpy
    weights, threshold = packed(states)
    zeros = [(jnp.zeros(weights.shape), jnp.zeros(threshold.shape)) for _ in range(2)]
    return ((jnp.array(weights), jnp.array(threshold)), *zeros)


def drawn(
    specs: list[RunSpec], steps: int
) -> tuple[dict[str, np.ndarray], Int[np.ndarray, "{steps} runs length"]]:
    """The problem of every run, and its first training contexts, as the scan takes them.

    `rows` are [runs, items, d_model], or [items, d_model] where all runs use a table of one's own;
    `targets` are π, and `messages` what the variant `value` retrieves.
    """
    from headcount.problem.contexts import ContextSampler
    from headcount.training.task import graph_of, messages_of, table_of

    parts = {name: dict[RunSpec, np.ndarray]() for name in ("rows", "targets", "messages")}
    contexts = dict[RunSpec, np.ndarray]()
    for spec in dict.fromkeys(specs):
        graph, rows = graph_of(spec), table_of(spec)
        parts["rows"][spec] = rows.numpy()
        parts["targets"][spec] = graph.targets.astype(np.int32)
        if spec.variant == "value":
            parts["messages"][spec] = messages_of(spec, rows).numpy()
        sampler = ContextSampler(graph, spec.length, spec.rate)
        found = sampler.draw(steps, seed=spec.seed, stream=spec.stream)
        contexts[spec] = found.numpy().astype(np.int32)
    problem = {
        name: np.stack([part[spec] for spec in specs]) for name, part in parts.items() if part
    }
    if is_content_hash(specs[0].table):
        problem["rows"] = parts["rows"][specs[0]]
    return problem, np.stack([contexts[spec] for spec in specs], 1)


def work(setup: dict[str, Any]) -> None:
    """Answer lines on standard input until it ends."""
    if setup["device"] == "cpu" and hasattr(os, "sched_setaffinity"):  # XLA then sees one core
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    jax = load_jax()
    specs = Case(*setup["case"]).specs(setup["runs"])
    call, state = scan_steps(specs[0]), begin([State.initial(spec) for spec in specs])
    inputs = jax.device_put(drawn(specs, setup["steps"]))
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
