# ruff: noqa: I001  (names are grouped by what they are for)
"""headcount: how many heads does your attention need?

Software for *A Capacity-Based Rationale for Multi-Head Attention* (M. Adler, arXiv 2509.22840).
This page is the public API. Names load on first use, so that `import headcount` stays fast.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in `typing`, whose import would take longer than all else here

# Type checkers read these imports; at run time nothing here is imported. Instead, `__getattr__`
# below finds in the text of this block where a name is defined, so that each is written once.
# `name as name` is how a typed package marks a name as public.
if TYPE_CHECKING:
    # Problems: graphs, embedding tables, contexts
    from headcount.problem.graph import Graph as Graph
    from headcount.problem.conversion import as_graph as as_graph
    from headcount.problem.makers import permutation_graph as permutation_graph
    from headcount.problem.makers import regular_graph as regular_graph
    from headcount.problem.makers import random_graph as random_graph
    from headcount.problem.makers import skewed_graph as skewed_graph
    from headcount.problem.makers import with_positions as with_positions
    from headcount.problem.edge_list import read_graph as read_graph
    from headcount.problem.edge_list import write_graph as write_graph
    from headcount.problem.vocabulary import Vocabulary as Vocabulary
    from headcount.problem.vocabulary import read_names as read_names
    from headcount.problem.embeddings import gaussian_embeddings as gaussian_embeddings
    from headcount.problem.embeddings import binary_embeddings as binary_embeddings
    from headcount.problem.embeddings import one_hot_embeddings as one_hot_embeddings
    from headcount.problem.tables import as_table as as_table
    from headcount.problem.tables import load_embeddings as load_embeddings
    from headcount.problem.tables import save_embeddings as save_embeddings
    from headcount.problem.reading import read_problem as read_problem
    from headcount.problem.relations import relations as relations
    from headcount.problem.token_tables import token_table as token_table
    from headcount.problem.token_tables import TokenTable as TokenTable
    from headcount.problem.contexts import ContextSampler as ContextSampler
    from headcount.problem.contexts import labels as labels

    # Weights: build them, read them, hand them to torch
    from headcount.attention.key_query import KeyQuery as KeyQuery
    from headcount.constructions.construct import construct as construct
    from headcount.constructions.compressive_noise import measure_noise as measure_noise
    from headcount.constructions.compressive_noise import CompressiveNoise as CompressiveNoise
    from headcount.compiler.compile import compile as compile
    from headcount.compiler.search import Compiled as Compiled
    from headcount.compiler.certificate import Certificate as Certificate
    from headcount.attention.storage import load_weights as load_weights
    from headcount.attention.storage import load as load  # the former name of `load_weights`
    from headcount.attention.export import to_torch as to_torch
    from headcount.attention.export import TorchAttention as TorchAttention
    from headcount.attention.export import load_attention as load_attention
    from headcount.attention.export import padded as padded
    from headcount.attention.grouped_export import GroupedAttention as GroupedAttention
    from headcount.attention.grouped_export import to_grouped as to_grouped
    from headcount.attention.grouped_export import load_grouped as load_grouped

    # Verification
    from headcount.attention.verification import verify as verify
    from headcount.attention.recovery import Recovery as Recovery
    from headcount.attention.softmax_certificate import softmax_certificate as softmax_certificate
    from headcount.attention.recovery import SoftmaxCertificate as SoftmaxCertificate

    # Theory: budgets, bounds, capacity
    from headcount.theory.adviser import advise as advise
    from headcount.theory.adviser import Advice as Advice
    from headcount.theory.planner import plan as plan
    from headcount.theory.planner import Plan as Plan
    from headcount.theory.key_cache import plan_key_cache as plan_key_cache
    from headcount.theory.key_cache import KeyCachePlan as KeyCachePlan
    from headcount.theory.lower_bounds import lower_bounds as lower_bounds
    from headcount.theory.lower_bounds import LowerBound as LowerBound
    from headcount.theory.capacity import capacity as capacity
    from headcount.theory.capacity_law import capacity_ratio as capacity_ratio
    from headcount.theory.refined_law import law as law
    from headcount.theory.refined_law import LawReading as LawReading
    from headcount.theory.capacity import Holding as Holding
    from headcount.theory.model_config import read_config as read_config
    from headcount.theory.model_config import Architecture as Architecture
    from headcount.theory.incoherence import incoherence as incoherence
    from headcount.theory.incoherence import Incoherence as Incoherence

    # Training
    from headcount.training.train import train as train
    from headcount.training.spec import RunSpec as RunSpec
    from headcount.training.result import RunResults as RunResults
    from headcount.training.result import RunResult as RunResult
    from headcount.block.train import train_blocks as train_blocks
    from headcount.block.spec import BlockSpec as BlockSpec
    from headcount.block.spec import BlockResults as BlockResults
    from headcount.block.spec import BlockResult as BlockResult

    # Sweeps and their results
    from headcount.sweeps.file import read_sweep as read_sweep
    from headcount.sweeps.file import SweepFile as SweepFile
    from headcount.sweeps.runner import run_sweep as run_sweep
    from headcount.sweeps.writer import SweepProgress as SweepProgress
    from headcount.store.store import Store as Store
    from headcount.analysis.curves import curves as curves
    from headcount.analysis.thresholds import thresholds as thresholds
    from headcount.analysis.thresholds import Thresholds as Thresholds
    from headcount.analysis.thresholds import Threshold as Threshold
    from headcount.report.curve_chart import curve_chart as curve_chart
    from headcount.analysis.laws import fit_law as fit_law
    from headcount.theory.laws import TrainedLaw as TrainedLaw

    # The interactive page
    from headcount.explorer.page import explore as explore

    # The paper's experiments
    from headcount.report.reproduce import reproduce as reproduce
    from headcount.report.reproduce import Reproduction as Reproduction
    from headcount.report.reproduce import forecast_reproduction as forecast_reproduction
    from headcount.report.reproduce import ReproductionForecast as ReproductionForecast
    from headcount.reproduction.evidence import Evidence as Evidence
    from headcount.report.figures import figure as figure
    from headcount.reproduction.frontier import frontier as frontier
    from headcount.reproduction.shipped import measured_runs as measured_runs
    from headcount.reproduction.refined_verdicts import law_verdicts as law_verdicts
    from headcount.reproduction.shared_key_verdicts import (
        shared_key_verdicts as shared_key_verdicts,
    )

    # Real models
    from headcount.auditing.audit import audit as audit
    from headcount.auditing.result import ModelAudit as ModelAudit

    # Speed
    from headcount.bench.suite import bench_all as bench_all
    from headcount.bench.suite import Benchmark as Benchmark
    from headcount.bench.suite import read_benchmark as read_benchmark
    from headcount.bench.comparison import compare_benchmarks as compare_benchmarks
    from headcount.bench.comparison import BenchmarkComparison as BenchmarkComparison

    # Errors
    from headcount.errors import InputError as InputError
    from headcount.errors import NoSolution as NoSolution

    __version__: str


_HOMES: dict[str, tuple[str, str]] = {}  # of each public name: its module and its name there


def _homes() -> dict[str, tuple[str, str]]:
    """The homes of all public names, read from the block above when they are first needed."""
    if not _HOMES:
        import ast

        assert __spec__ is not None
        source = __spec__.loader.get_source(__name__)  # pyright: ignore
        blocks = [block for block in ast.parse(source).body if isinstance(block, ast.If)]
        for statement in blocks[0].body:
            if isinstance(statement, ast.ImportFrom):
                for alias in statement.names:
                    _HOMES[alias.asname or alias.name] = (statement.module or "", alias.name)
    return _HOMES


if not TYPE_CHECKING:  # or a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name == "__all__":
            return sorted(_homes())
        if name == "__version__":
            from headcount.provenance import package_version

            return package_version("headcount") or "unknown"
        if name.startswith("_") or name not in _homes():
            raise AttributeError(f"module 'headcount' has no attribute {name!r}")
        from importlib import import_module

        module, there = _HOMES[name]
        return getattr(import_module(module), there)


def __dir__() -> list[str]:
    return [*_homes(), "__all__", "__doc__", "__version__"]
