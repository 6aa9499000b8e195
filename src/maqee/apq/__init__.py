"""The method on arrays: cost, risks, thresholds, bits and the search for both. No modules, no device code in here.

Names are loaded when they are first used; none of them loads torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maqee.apq.bits import BlockBits as BlockBits
    from maqee.apq.bits import BlockRisks as BlockRisks
    from maqee.apq.bits import Scores as Scores
    from maqee.apq.bits import Swap as Swap
    from maqee.apq.bits import candidate_swaps as candidate_swaps
    from maqee.apq.bits import score_bits as score_bits
    from maqee.apq.budget import Budget as Budget
    from maqee.apq.choose import choose_policy as choose_policy
    from maqee.apq.choose import choose_thresholds as choose_thresholds
    from maqee.apq.choose import shared_threshold as shared_threshold
    from maqee.apq.cost import bops as bops
    from maqee.apq.cost import part_bops as part_bops
    from maqee.apq.cost import part_reach as part_reach
    from maqee.apq.cost import total_macs as total_macs
    from maqee.apq.cost import utilization as utilization
    from maqee.apq.exact import exact_search as exact_search
    from maqee.apq.exact_bits import allocate as allocate
    from maqee.apq.exact_bits import allocate_bits as allocate_bits
    from maqee.apq.figures import block_reach as block_reach
    from maqee.apq.figures import exit_costs as exit_costs
    from maqee.apq.figures import policy_figures as policy_figures
    from maqee.apq.frontier import Point as Point
    from maqee.apq.frontier import controlled_performance as controlled_performance
    from maqee.apq.frontier import lambda_frontier as lambda_frontier
    from maqee.apq.frontier import moved_thresholds as moved_thresholds
    from maqee.apq.frontier import offset_sweep as offset_sweep
    from maqee.apq.greedy import greedy_bits as greedy_bits
    from maqee.apq.held_out import ExpectedChoice as ExpectedChoice
    from maqee.apq.held_out import choose_expected as choose_expected
    from maqee.apq.held_out import expected_choice as expected_choice
    from maqee.apq.loop import SearchResult as SearchResult
    from maqee.apq.loop import make_plan as make_plan
    from maqee.apq.loop import search as search
    from maqee.apq.measure import Measure as Measure
    from maqee.apq.objective import ExitProblem as ExitProblem
    from maqee.apq.objective import Limit as Limit
    from maqee.apq.objective import best_metric_problem as best_metric_problem
    from maqee.apq.objective import least_cost_problem as least_cost_problem
    from maqee.apq.objective import outer_problem as outer_problem
    from maqee.apq.objective import problem_within as problem_within
    from maqee.apq.objective import with_cost_limit as with_cost_limit
    from maqee.apq.options import SearchOptions as SearchOptions
    from maqee.apq.plan import Plan as Plan
    from maqee.apq.plan import library_versions as library_versions
    from maqee.apq.records import Expected as Expected
    from maqee.apq.records import Figures as Figures
    from maqee.apq.records import FoldOutcome as FoldOutcome
    from maqee.apq.records import Found as Found
    from maqee.apq.records import Position as Position
    from maqee.apq.records import Scales as Scales
    from maqee.apq.records import Step as Step
    from maqee.apq.risks import bsr as bsr
    from maqee.apq.risks import inverse_sqnr as inverse_sqnr
    from maqee.apq.risks import measure_scales as measure_scales
    from maqee.apq.risks import noise_ratio as noise_ratio
    from maqee.apq.risks import pgr as pgr
    from maqee.apq.risks import qid as qid
    from maqee.apq.risks import range_deviation as range_deviation
    from maqee.apq.risks import risk_of_blocks as risk_of_blocks
    from maqee.apq.search_state import SearchState as SearchState
    from maqee.apq.thresholds import GRID as GRID
    from maqee.apq.thresholds import coordinate_search as coordinate_search
    from maqee.apq.thresholds import every_candidate as every_candidate
    from maqee.apq.thresholds import grid_candidates as grid_candidates
    from maqee.apq.thresholds import near_candidates as near_candidates
    from maqee.apq.thresholds import quantile_candidates as quantile_candidates
    from maqee.apq.trace import Trace as Trace
    from maqee.apq.validate import cross_validate as cross_validate
    from maqee.apq.validate import expected_from as expected_from
    from maqee.apq.validate import fold_outcomes as fold_outcomes
    from maqee.widths import BitPair as BitPair
    from maqee.widths import BitSettings as BitSettings
    from maqee.widths import BlockWidths as BlockWidths
else:
    from maqee.lazy import attach

    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "BitPair": "maqee.widths",
            "BitSettings": "maqee.widths",
            "BlockBits": "maqee.apq.bits",
            "BlockWidths": "maqee.widths",
            "BlockRisks": "maqee.apq.bits",
            "Budget": "maqee.apq.budget",
            "ExitProblem": "maqee.apq.objective",
            "Expected": "maqee.apq.records",
            "ExpectedChoice": "maqee.apq.held_out",
            "Figures": "maqee.apq.records",
            "FoldOutcome": "maqee.apq.records",
            "Found": "maqee.apq.records",
            "GRID": "maqee.apq.thresholds",
            "Limit": "maqee.apq.objective",
            "Measure": "maqee.apq.measure",
            "Plan": "maqee.apq.plan",
            "Point": "maqee.apq.frontier",
            "Position": "maqee.apq.records",
            "Scales": "maqee.apq.records",
            "Scores": "maqee.apq.bits",
            "SearchOptions": "maqee.apq.options",
            "SearchResult": "maqee.apq.loop",
            "SearchState": "maqee.apq.search_state",
            "Step": "maqee.apq.records",
            "Swap": "maqee.apq.bits",
            "Trace": "maqee.apq.trace",
            "allocate": "maqee.apq.exact_bits",
            "allocate_bits": "maqee.apq.exact_bits",
            "best_metric_problem": "maqee.apq.objective",
            "block_reach": "maqee.apq.figures",
            "bops": "maqee.apq.cost",
            "bsr": "maqee.apq.risks",
            "candidate_swaps": "maqee.apq.bits",
            "choose_expected": "maqee.apq.held_out",
            "choose_policy": "maqee.apq.choose",
            "choose_thresholds": "maqee.apq.choose",
            "controlled_performance": "maqee.apq.frontier",
            "coordinate_search": "maqee.apq.thresholds",
            "cross_validate": "maqee.apq.validate",
            "every_candidate": "maqee.apq.thresholds",
            "exact_search": "maqee.apq.exact",
            "exit_costs": "maqee.apq.figures",
            "expected_choice": "maqee.apq.held_out",
            "expected_from": "maqee.apq.validate",
            "fold_outcomes": "maqee.apq.validate",
            "greedy_bits": "maqee.apq.greedy",
            "grid_candidates": "maqee.apq.thresholds",
            "inverse_sqnr": "maqee.apq.risks",
            "lambda_frontier": "maqee.apq.frontier",
            "least_cost_problem": "maqee.apq.objective",
            "library_versions": "maqee.apq.plan",
            "make_plan": "maqee.apq.loop",
            "measure_scales": "maqee.apq.risks",
            "near_candidates": "maqee.apq.thresholds",
            "noise_ratio": "maqee.apq.risks",
            "moved_thresholds": "maqee.apq.frontier",
            "offset_sweep": "maqee.apq.frontier",
            "outer_problem": "maqee.apq.objective",
            "part_bops": "maqee.apq.cost",
            "part_reach": "maqee.apq.cost",
            "pgr": "maqee.apq.risks",
            "policy_figures": "maqee.apq.figures",
            "problem_within": "maqee.apq.objective",
            "qid": "maqee.apq.risks",
            "quantile_candidates": "maqee.apq.thresholds",
            "range_deviation": "maqee.apq.risks",
            "risk_of_blocks": "maqee.apq.risks",
            "score_bits": "maqee.apq.bits",
            "search": "maqee.apq.loop",
            "shared_threshold": "maqee.apq.choose",
            "total_macs": "maqee.apq.cost",
            "utilization": "maqee.apq.cost",
            "with_cost_limit": "maqee.apq.objective",
        },
    )
