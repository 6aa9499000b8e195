"""Recipes that come with maqee."""

from __future__ import annotations

from pathlib import Path

from maqee.errors import suggest


def recipe_folder() -> Path:
    """The folder of shipped recipes: beside the sources in a checkout, inside the package when installed."""
    package = Path(__file__).parents[1]
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parents[1] / "recipes"


def list_recipes() -> list[str]:
    """Names of the shipped recipes."""
    return sorted(path.stem for path in recipe_folder().glob("*.yaml"))


def find_recipe(name: str) -> Path:
    """A path as it is, or a shipped recipe by name."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.exists():
        return path
    if name not in list_recipes():
        raise suggest(name, list_recipes(), "recipe")
    return recipe_folder() / f"{name}.yaml"
