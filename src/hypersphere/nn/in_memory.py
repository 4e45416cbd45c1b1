"""Encoders that are objects: known by the name that a config keeps for as long as they are in use."""

import copy
import hashlib
import re
from weakref import WeakValueDictionary

from torch import nn
from torch.nn.parameter import is_lazy

from hypersphere.errors import UserError, first_line

IN_MEMORY = "in-memory-"  # prefix of the names
_GIVEN: WeakValueDictionary[str, nn.Module] = WeakValueDictionary()


def remember_network(network: nn.Module) -> str:
    """Return the name of a network; `copy_of` finds it by this name as long as it is in use.

    The name tells the architecture, not the weights: a resumed run can check that it gets a network that fits.

    Raises:
        UserError: If it has lazy layers that have not seen an input.
    """
    if any(map(is_lazy, (*network.parameters(), *network.buffers()))):
        advice = "pass a batch of images through it first"
        raise UserError(f"`encoder` {type(network).__name__} has lazy layers, which have no weights yet: {advice}")
    name = f"{IN_MEMORY}{type(network).__name__}-{_architecture(network)}"
    _GIVEN[name] = network
    return name


def is_in_memory(name: str) -> bool:
    """Whether an encoder's name is of an object."""
    return name.startswith(IN_MEMORY)


def given(name: str) -> nn.Module:
    """The network that `remember_network` gave this name.

    Raises:
        UserError: If it is not in use any more.
    """
    network = _GIVEN.get(name)
    if network is None:
        advice = "hs.load_run(RUN, encoder=network), hs.load(RUN, encoder=network) or hs.pretrain(resume=RUN, …)"
        raise UserError(f"`encoder` {name} was an object in memory: pass a network like it in Python: {advice}")
    return network


def copy_of(name: str) -> nn.Module:
    """A copy of the network that `remember_network` gave this name. Training it does not change the original."""
    network = given(name)
    try:
        return copy.deepcopy(network)
    except Exception as error:  # whatever its parts raise
        raise UserError(f"`encoder` {type(network).__name__} cannot be copied ({first_line(error)})") from None


def _architecture(network: nn.Module) -> str:
    """A hash of the layers with their options, and of names and shapes of all tensors."""
    layers = re.sub(r" at 0x[0-9a-f]+", "", repr(network))
    shapes = [(name, tuple(tensor.shape)) for name, tensor in network.state_dict().items()]
    return hashlib.sha256(f"{type(network).__module__} {layers} {shapes}".encode()).hexdigest()[:8]
