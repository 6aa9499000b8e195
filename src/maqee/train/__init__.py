"""Training: recipes, stages, and one loop for all of them."""

from maqee.train.recipe import Recipe, read_recipe
from maqee.train.run import run_recipe
from maqee.train.stages import Stage, stages

__all__ = ["Recipe", "Stage", "read_recipe", "run_recipe", "stages"]
