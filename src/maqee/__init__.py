"""Cheap vision transformers: early exits and mixed precision, chosen together.

What a command can do, one function here can do too, and gives back a value with a `to_json`. Names are loaded when they
are first used, so that `import maqee` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maqee.apq import Budget as Budget
    from maqee.apq import Plan as Plan
    from maqee.apq import SearchOptions as SearchOptions
    from maqee.apq import Trace as Trace
    from maqee.apq.road_times import RoadTimes as RoadTimes
    from maqee.bench.decisions import bench_decisions as bench_decisions
    from maqee.bench.engine_speed import bench_engines as bench_engines
    from maqee.bench.fitting import bench_quantize as bench_quantize
    from maqee.bench.gradients import bench_gradients as bench_gradients
    from maqee.bench.integers import bench_integers as bench_integers
    from maqee.bench.kernel_speed import bench_kernels as bench_kernels
    from maqee.bench.neighbour import bench_neighbour as bench_neighbour
    from maqee.bench.plans import bench_plans as bench_plans
    from maqee.bench.recovery_step import bench_recovery as bench_recovery
    from maqee.bench.roads import profile as profile
    from maqee.bench.search_step import bench_search as bench_search
    from maqee.bench.signals import bench_signals as bench_signals
    from maqee.bench.streams import bench_stream as bench_stream
    from maqee.bench.throughput import bench_exits as bench_exits
    from maqee.compression import CompressOptions as CompressOptions
    from maqee.compression import RecoverySettings as RecoverySettings
    from maqee.compression import RiskOptions as RiskOptions
    from maqee.compression import compress as compress
    from maqee.compression.baselines import Baselines as Baselines
    from maqee.compression.baselines import baselines as baselines
    from maqee.compression.compress_config import CompressConfig as CompressConfig
    from maqee.compression.compress_config import read_compress_config as read_compress_config
    from maqee.compression.demo import Demo as Demo
    from maqee.compression.demo import demo as demo
    from maqee.compression.envelope import envelope as envelope
    from maqee.compression.envelope_results import Envelope as Envelope
    from maqee.data import open_data as open_data
    from maqee.errors import MaqeeError as MaqeeError
    from maqee.evaluation import Evaluation as Evaluation
    from maqee.evaluation import evaluate as evaluate
    from maqee.evaluation.confidence_ranks import ConfidenceRanks as ConfidenceRanks
    from maqee.evaluation.confidence_ranks import rank_confidences as rank_confidences
    from maqee.evaluation.cost_report import CostReport as CostReport
    from maqee.evaluation.cost_report import cost as cost
    from maqee.evaluation.diagnose import RunDiagnosis as RunDiagnosis
    from maqee.evaluation.diagnose import diagnose as diagnose
    from maqee.evaluation.frontier_plans import FrontierEvaluation as FrontierEvaluation
    from maqee.evaluation.method_comparison import MethodComparison as MethodComparison
    from maqee.evaluation.quantization import compare_methods as compare_methods
    from maqee.evaluation.trace_results import TraceFrontier as TraceFrontier
    from maqee.evaluation.trace_results import TraceSearch as TraceSearch
    from maqee.evaluation.trace_search import search as search
    from maqee.evaluation.what import LayerTable as LayerTable
    from maqee.evaluation.what import what as what
    from maqee.exits import EarlyExitModel as EarlyExitModel
    from maqee.exits import add_exits as add_exits
    from maqee.models import load_backbone as load_backbone
    from maqee.policy import Policy as Policy
    from maqee.quant import Bits as Bits
    from maqee.quant import QuantizedModel as QuantizedModel
    from maqee.quant import QuantSettings as QuantSettings
    from maqee.quant import quantize as quantize
    from maqee.report.grid_formats import render_table as render_table
    from maqee.report.model_card import write_model_card as write_model_card
    from maqee.report.show import Pictures as Pictures
    from maqee.report.show import show as show
    from maqee.report.write_report import Report as Report
    from maqee.report.write_report import write_report as write_report
    from maqee.runtime import Prediction as Prediction
    from maqee.runtime import ReadyModel as ReadyModel
    from maqee.runtime import load as load
    from maqee.runtime import predict as predict
    from maqee.runtime.export.exported import Export as Export
    from maqee.runtime.export.exported import export as export
    from maqee.tables.table_run import Table as Table
    from maqee.tables.table_run import table as table
    from maqee.training import Recipe as Recipe
    from maqee.training import Training as Training
    from maqee.training import read_recipe as read_recipe
    from maqee.training import train as train
    from maqee.training.catalogue import Catalogue as Catalogue
    from maqee.training.catalogue import list_names as list_names
    from maqee.training.exits_recipe import train_exits as train_exits
else:
    from maqee.lazy import attach

    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "Baselines": "maqee.compression.baselines",
            "Bits": "maqee.quant",
            "Budget": "maqee.apq",
            "Catalogue": "maqee.training.catalogue",
            "CompressConfig": "maqee.compression.compress_config",
            "CompressOptions": "maqee.compression",
            "ConfidenceRanks": "maqee.evaluation.confidence_ranks",
            "CostReport": "maqee.evaluation.cost_report",
            "Demo": "maqee.compression.demo",
            "EarlyExitModel": "maqee.exits",
            "Envelope": "maqee.compression.envelope_results",
            "Evaluation": "maqee.evaluation",
            "Export": "maqee.runtime.export.exported",
            "FrontierEvaluation": "maqee.evaluation.frontier_plans",
            "LayerTable": "maqee.evaluation.what",
            "MaqeeError": "maqee.errors",
            "MethodComparison": "maqee.evaluation.method_comparison",
            "Pictures": "maqee.report.show",
            "Plan": "maqee.apq",
            "Policy": "maqee.policy",
            "Prediction": "maqee.runtime",
            "QuantSettings": "maqee.quant",
            "QuantizedModel": "maqee.quant",
            "ReadyModel": "maqee.runtime",
            "Recipe": "maqee.training",
            "RecoverySettings": "maqee.compression",
            "Report": "maqee.report.write_report",
            "RiskOptions": "maqee.compression",
            "RoadTimes": "maqee.apq.road_times",
            "RunDiagnosis": "maqee.evaluation.diagnose",
            "SearchOptions": "maqee.apq",
            "Table": "maqee.tables.table_run",
            "Trace": "maqee.apq",
            "TraceFrontier": "maqee.evaluation.trace_results",
            "TraceSearch": "maqee.evaluation.trace_results",
            "Training": "maqee.training",
            "add_exits": "maqee.exits",
            "baselines": "maqee.compression.baselines",
            "bench_decisions": "maqee.bench.decisions",
            "bench_engines": "maqee.bench.engine_speed",
            "bench_exits": "maqee.bench.throughput",
            "bench_gradients": "maqee.bench.gradients",
            "bench_integers": "maqee.bench.integers",
            "bench_kernels": "maqee.bench.kernel_speed",
            "bench_neighbour": "maqee.bench.neighbour",
            "bench_plans": "maqee.bench.plans",
            "bench_quantize": "maqee.bench.fitting",
            "bench_recovery": "maqee.bench.recovery_step",
            "bench_search": "maqee.bench.search_step",
            "bench_signals": "maqee.bench.signals",
            "bench_stream": "maqee.bench.streams",
            "compare_methods": "maqee.evaluation.quantization",
            "compress": "maqee.compression",
            "cost": "maqee.evaluation.cost_report",
            "demo": "maqee.compression.demo",
            "diagnose": "maqee.evaluation.diagnose",
            "envelope": "maqee.compression.envelope",
            "evaluate": "maqee.evaluation",
            "export": "maqee.runtime.export.exported",
            "list_names": "maqee.training.catalogue",
            "load": "maqee.runtime",
            "load_backbone": "maqee.models",
            "open_data": "maqee.data",
            "predict": "maqee.runtime",
            "profile": "maqee.bench.roads",
            "quantize": "maqee.quant",
            "rank_confidences": "maqee.evaluation.confidence_ranks",
            "read_compress_config": "maqee.compression.compress_config",
            "read_recipe": "maqee.training",
            "render_table": "maqee.report.grid_formats",
            "search": "maqee.evaluation.trace_search",
            "show": "maqee.report.show",
            "table": "maqee.tables.table_run",
            "train_exits": "maqee.training.exits_recipe",
            "train": "maqee.training",
            "what": "maqee.evaluation.what",
            "write_model_card": "maqee.report.model_card",
            "write_report": "maqee.report.write_report",
        },
    )
