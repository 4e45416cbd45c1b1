"""Options that have no effect on a run."""

from hypersphere.config import Config, photograph_options, recipe
from hypersphere.data.sets import in_files, of_any_size
from hypersphere.presets import is_folder


def idle_options(config: Config) -> set[str]:
    """Return the names of options that have no effect, because of other options or of the data."""
    of_data = {"labels": is_folder(config.data), "white": in_files(config), "size": of_any_size(config)}
    return config.inactive | {name for name, used in of_data.items() if not used}


def unused_options(config: Config) -> list[str]:
    """Return the names of options that differ from the recipe although they have no effect."""
    published = photograph_options(config.method, config.data, config.size)
    usual = recipe(config.method, config.data, **published)
    return sorted(name for name in idle_options(config) if getattr(config, name) != getattr(usual, name))
