"""Measuring models: one pass over a data set, and the figures of exits, policies and plans that come of it."""

from maqee.evaluation.evaluate_run import evaluate
from maqee.evaluation.results import Evaluation, ExitFigures, PolicyFigures

__all__ = ["Evaluation", "ExitFigures", "PolicyFigures", "evaluate"]
