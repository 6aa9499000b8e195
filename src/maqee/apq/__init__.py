"""The method on arrays: cost, risks, thresholds, bits and the search for both. No modules, no device code in here."""

from maqee.apq.bits import BlockBits, BlockRisks, Scores, Swap, candidate_swaps, score_bits
from maqee.apq.budget import Budget
from maqee.apq.choose import choose_policy, choose_thresholds, shared_threshold
from maqee.apq.cost import BitSettings, bops, part_bops, part_reach, total_macs, utilization
from maqee.apq.exact import exact_search
from maqee.apq.exact_bits import allocate, allocate_bits
from maqee.apq.figures import Figures, block_reach, exit_costs, policy_figures
from maqee.apq.frontier import Point, controlled_performance, lambda_frontier, offset_sweep, undominated
from maqee.apq.greedy import greedy_bits
from maqee.apq.loop import SearchResult, search, search_frontier
from maqee.apq.measure import Measure
from maqee.apq.objective import ExitProblem, Limit, least_cost_problem, outer_problem, with_cost_limit
from maqee.apq.options import SearchOptions
from maqee.apq.plan import OtherBits, Plan, library_versions, make_plan
from maqee.apq.risks import (
    Scales,
    bsr,
    inverse_sqnr,
    measure_scales,
    noise_ratio,
    pgr,
    qid,
    range_deviation,
    risk_of_blocks,
)
from maqee.apq.search_state import Position, SearchState, Step
from maqee.apq.thresholds import GRID, Found, coordinate_search, every_candidate, grid_candidates, near_candidates
from maqee.apq.trace import Trace
from maqee.apq.validate import Expected, cross_validate, expect

__all__ = [
    "GRID",
    "BitSettings",
    "BlockBits",
    "BlockRisks",
    "Budget",
    "ExitProblem",
    "Expected",
    "Figures",
    "Found",
    "Limit",
    "Measure",
    "OtherBits",
    "Plan",
    "Point",
    "Position",
    "Scales",
    "Scores",
    "SearchOptions",
    "SearchResult",
    "SearchState",
    "Step",
    "Swap",
    "Trace",
    "allocate",
    "allocate_bits",
    "block_reach",
    "bops",
    "bsr",
    "candidate_swaps",
    "choose_policy",
    "choose_thresholds",
    "controlled_performance",
    "coordinate_search",
    "cross_validate",
    "every_candidate",
    "exact_search",
    "exit_costs",
    "expect",
    "greedy_bits",
    "grid_candidates",
    "inverse_sqnr",
    "lambda_frontier",
    "least_cost_problem",
    "library_versions",
    "make_plan",
    "measure_scales",
    "near_candidates",
    "noise_ratio",
    "offset_sweep",
    "outer_problem",
    "part_bops",
    "part_reach",
    "pgr",
    "policy_figures",
    "qid",
    "range_deviation",
    "risk_of_blocks",
    "score_bits",
    "search",
    "search_frontier",
    "shared_threshold",
    "total_macs",
    "undominated",
    "utilization",
    "with_cost_limit",
]
