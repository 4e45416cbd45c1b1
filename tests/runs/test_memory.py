"""Memory that a run needs, told before it is taken."""

import pytest
import torch

import hypersphere as hs
from hypersphere.config import recipe
from hypersphere.errors import UserError
from hypersphere.runs import memory
from hypersphere.runs.build import build_method, trainer_of, trial_update
from hypersphere.runs.machine import training_execution
from hypersphere.runs.memory import check_memory, free_memory, memory_errors_as_user_errors, network_memory

CPU = torch.device("cpu")


def size(tensors):
    return sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor))


@pytest.mark.parametrize("method", ["byol-mhe", "moco", "swav", "dino"])
@pytest.mark.parametrize("optimizer", ["lars", "adamw"])
def test_it_is_what_an_update_takes(method, optimizer):
    config = recipe(method, "digits", optimizer=optimizer, device="cpu", batch=32)
    before = torch.get_rng_state()
    found = network_memory(config, 1, 10)
    assert torch.equal(torch.get_rng_state(), before)
    built = build_method(config, 1, 10)
    trainer = trainer_of(config, built, training_execution(config))
    for weight in built.parameters():
        weight.grad = torch.zeros_like(weight) if weight.requires_grad else None
    trainer.optimizer.step()
    state = [value for values in trainer.optimizer.state.values() for value in values.values()]
    gradients = [weight.grad for weight in built.parameters()]
    taken = size(built.parameters()) + size(built.buffers()) + size(gradients) + size(state)
    assert found.total == pytest.approx(taken, rel=0.01)


def test_what_does_not_fit_is_refused(monkeypatch):
    config = recipe("byol", "digits", hidden=4096)
    check_memory(config, 1, 10, CPU)
    monkeypatch.setattr(memory, "free_memory", lambda device: 10**6)
    with pytest.raises(UserError, match=r"need \d+\.\d MB of memory .* for projector; 1 MB are free on this machine"):
        check_memory(config, 1, 10, CPU)


@pytest.mark.parametrize("hidden", [2**32 - 1, 10**12, 10**19, 10**30])
def test_no_machine_has_that_much(hidden, tmp_path):
    with pytest.raises(UserError, match=r"need .* memory"):
        hs.pretrain("byol", data="digits", hidden=hidden, out=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_number_that_no_integer_of_torch_holds_is_refused_wherever_it_comes_from():
    with pytest.raises(
        UserError, match=r"`projection` would need more memory than any machine has, got 9223372036854775808"
    ):
        recipe("byol", "digits", projection=2**63)
    assert recipe("byol", "digits", save_every=2**63 - 1).save_every == 2**63 - 1


def test_free_memory_is_that_of_the_machine():
    with open("/proc/meminfo") as file:
        total = next(1024 * int(line.split()[1]) for line in file if line.startswith("MemTotal"))
    assert 0 < free_memory(CPU) <= total
    assert free_memory(torch.device("meta")) is None


@pytest.mark.parametrize(
    ("each", "advice"), [(10**8, "about 64 would fit"), (10**9, "about 8 would fit"), (10**10, "choose a smaller")]
)
def test_a_gpu_that_is_full_is_told_with_what_would_fit(monkeypatch, each, advice):
    """10 GB are free; the networks take 1 GB, and an image as much as `each` says."""
    peak = {"bytes": 0}
    for name, value in {"empty_cache": None, "reset_peak_memory_stats": None, "memory_allocated": 0}.items():
        monkeypatch.setattr(torch.cuda, name, lambda *a, value=value: value)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: peak["bytes"])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10**10, 10**11))

    def trial(count):
        return lambda: peak.update(bytes=10**9 + each * count)

    told = pytest.raises(UserError, match=rf"GPU memory does not suffice for 512 images at once: {advice}")
    with told, memory_errors_as_user_errors(512, torch.device("cuda"), trial):
        raise torch.OutOfMemoryError("CUDA out of memory")
    with pytest.raises(RuntimeError, match="other"), memory_errors_as_user_errors(512, CPU, trial):
        raise RuntimeError("other")


def test_a_trial_leaves_the_networks_alone():
    config = recipe("byol", "digits", device="cpu", batch=32)
    how, method = training_execution(config), build_method(config, 1, 10)
    images, _ = hs.data.load_data("digits")
    before = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    trial_update(config, method, how, images, 8)()
    assert all(torch.equal(method.state_dict()[name], tensor) for name, tensor in before.items())
