"""Options that have no effect on a run."""

from hypersphere.config import Config, photograph_options, recipe
from hypersphere.data import Dataset


def inactive_options(config: Config) -> set[str]:
    """Return the names of options that have no effect, because of other options or of the data."""
    return config.inactive | Dataset.resolve(config).ignored


def unused_options(config: Config) -> list[str]:
    """Return the names of options that differ from the recipe although they have no effect."""
    published = photograph_options(config.method, config.data, config.size)
    usual = recipe(config.method, config.data, **published)
    return sorted(name for name in inactive_options(config) if getattr(config, name) != getattr(usual, name))
