"""Training: recipes, stages, and one loop for all of them."""

from maqee.training.recipe import Recipe, read_recipe
from maqee.training.stages import Stage, stages
from maqee.training.train_run import StageFigures, Training, train
from maqee.training.trainer import run_recipe

__all__ = ["Recipe", "Stage", "StageFigures", "Training", "read_recipe", "run_recipe", "stages", "train"]
