"""Adapters of PEFT, layers of transformers and timm: the weights that act are regularized, and what is not is said."""

import copy
import warnings

import pytest
import torch
from torch import nn

import hypersphere as hs
from hypersphere.regularize import EnergyRegularizer, groups_of

peft = pytest.importorskip("peft", reason="needs the extra ecosystem")
transformers = pytest.importorskip("transformers", reason="needs the extra ecosystem")


class Attention(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.q, self.v, self.out = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        return self.out(self.q(x) * self.v(x))


def adapted(kind, **options):
    torch.manual_seed(0)
    config = kind(target_modules=["q", "v"], **options)
    with warnings.catch_warnings(action="ignore"):  # BOFT warns that it has no CUDA kernel
        model = peft.get_peft_model(nn.Sequential(Attention(), Attention()), config)
    for name, parameter in model.named_parameters():  # as after some training: LoRA's B starts at 0
        if parameter.requires_grad and "magnitude" not in name:
            nn.init.normal_(parameter, std=0.1)
    return model


ADAPTERS = {
    "lora": lambda: adapted(peft.LoraConfig, r=4, lora_dropout=0.5),
    "dora": lambda: adapted(peft.LoraConfig, r=4, use_dora=True),
    "oft": lambda: adapted(peft.OFTConfig, oft_block_size=4),
    "boft": lambda: adapted(peft.BOFTConfig, boft_block_size=4),
}


@pytest.mark.parametrize("kind", ADAPTERS)
def test_the_weight_that_acts_is_the_merged_one(kind):
    model = ADAPTERS[kind]()
    regularizer = EnergyRegularizer(model, metric="geodesic")
    assert all(name.endswith((".q", ".v")) for name in regularizer.layers), regularizer.layers
    assert len(regularizer.layers) == 4
    merged = copy.deepcopy(model).merge_and_unload().requires_grad_(True)
    wanted = EnergyRegularizer(merged, metric="geodesic").per_layer()
    for name, energy in regularizer.per_layer().items():
        torch.testing.assert_close(energy, wanted[name.removeprefix("base_model.model.")], rtol=1e-4, atol=1e-5)
    regularizer().backward()
    gradients = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    assert gradients
    assert all(p.requires_grad for name, p in model.named_parameters() if name in gradients)
    assert model.training  # as before, although dropout was off


def test_lora_does_not_explode():
    """The factors themselves have no directions: B is 0 at first, and the term went from 0.045 to 2.4e4 in a step."""
    torch.manual_seed(0)
    model = peft.get_peft_model(nn.Sequential(Attention(64)), peft.LoraConfig(r=8, target_modules=["q", "v"]))
    regularizer = EnergyRegularizer(model, weight=0.01)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=2e-4)
    terms = []
    for _ in range(20):
        term = regularizer()
        (model(torch.randn(8, 64)).square().mean() + term).backward()
        terms.append(term.item())
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
        assert norm < 10
        optimizer.step()
        optimizer.zero_grad()
    assert max(terms) < 1.01 * terms[0]


def test_factors_count_if_they_are_named():
    model = ADAPTERS["lora"]()
    found = EnergyRegularizer(model, where="*.lora_A.*").layers
    assert len(found) == 4
    assert all(".lora_A." in name for name in found)
    everywhere = EnergyRegularizer(model, where=nn.Linear).layers
    assert all(name.endswith((".q", ".v")) for name in everywhere)


def test_disabled_and_several_adapters():
    model = ADAPTERS["lora"]()
    layer = model.base_model.model[0].q
    (acting,) = groups_of(layer)
    with model.disable_adapter():
        (base,) = groups_of(layer)
    assert torch.equal(base, layer.base_layer.weight)
    assert not torch.equal(base, acting)


def test_a_layer_that_is_replaced_is_noticed():
    model = nn.Sequential(Attention())
    regularizer = EnergyRegularizer(model)
    regularizer()
    peft.get_peft_model(model, peft.LoraConfig(target_modules=["q"]))
    with pytest.raises(
        RuntimeError, match=r"layer '0.q' has been replaced: make the regularizer after changing the model"
    ):
        regularizer()


@pytest.fixture(scope="module")
def gpt2():
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=300, n_positions=16)
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(config)


def test_gpt2_has_its_conv1d_and_not_the_tied_head(gpt2):
    regularizer = EnergyRegularizer(gpt2)
    shapes = {name.rpartition(".")[2]: shape for name, shape in regularizer.layers.items()}
    assert shapes == {"c_attn": [(32, 32)] * 3, "c_proj": [(32, 128)], "c_fc": [(128, 32)]}
    assert len(regularizer.layers) == 8
    assert regularizer.skipped["lm_head"] == "tied to an embedding"
    assert regularizer.skipped["transformer.wte"] == "Embedding: name its parameter in `also`"
    assert "8 layers (transformer.h.0.attn.c_attn, " in repr(regularizer)
    assert list(EnergyRegularizer(gpt2, where="lm_head").layers) == ["lm_head"]
    weight = gpt2.transformer.h[0].mlp.c_fc.weight
    wanted = hs.hyperspherical_energy(weight.T)
    torch.testing.assert_close(regularizer.per_layer()["transformer.h.0.mlp.c_fc"], wanted)


def test_weights_sorted_by_head_are_split_by_head():
    config = transformers.GPTNeoXConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64, vocab_size=50
    )
    attention = transformers.GPTNeoXModel(config).layers[0].attention
    w = attention.query_key_value.weight
    (q, k, v) = w.view(4, 3, 8, 32).transpose(0, 1).reshape(3, 32, 32)
    regularizer = EnergyRegularizer(attention)
    wanted = sum(hs.hyperspherical_energy(part) for part in (q, k, v)) / 3
    heads = [key for key in ("num_heads", "num_attention_heads", "n_head") if hasattr(attention, key)]
    if heads:
        torch.testing.assert_close(regularizer.per_layer()["query_key_value"], wanted)
    else:
        torch.testing.assert_close(regularizer.per_layer()["query_key_value"], hs.hyperspherical_energy(w))


def moved_by_the_term(tmp_path, micro_batches, in_the_loss):
    """How far one step of the Trainer moves a weight because of the regularizer."""
    pytest.importorskip("accelerate", reason="needs the extra ecosystem")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50, n_positions=8)
    draw = torch.Generator().manual_seed(0)
    tokens = [torch.randint(0, 50, (8,), generator=draw) for _ in range(16)]
    found = []
    for weight in (1.0, 0.0):
        torch.manual_seed(0)
        model = transformers.GPT2LMHeadModel(config).eval()  # without dropout
        regularizer = EnergyRegularizer(model, weight=weight)

        class Added(transformers.TrainerCallback):
            def on_pre_optimizer_step(self, args, state, control, **kwargs):
                regularizer().backward()  # noqa: B023

        class InTheLoss(transformers.Trainer):
            def compute_loss(self, *arguments, **options):
                return super().compute_loss(*arguments, **options) + regularizer()  # noqa: B023

        arguments = transformers.TrainingArguments(
            str(tmp_path),
            per_device_train_batch_size=16 // micro_batches,
            gradient_accumulation_steps=micro_batches,
            max_steps=1,
            learning_rate=0.1,
            optim="sgd",
            report_to=[],
            use_cpu=True,
            max_grad_norm=1e9,
            lr_scheduler_type="constant",
            save_strategy="no",
            disable_tqdm=True,
        )
        kind, callbacks = (InTheLoss, []) if in_the_loss else (transformers.Trainer, [Added()])
        data = [{"input_ids": each, "labels": each} for each in tokens]
        with warnings.catch_warnings(action="ignore"):
            kind(model, arguments, train_dataset=data, callbacks=callbacks).train()
        found.append(model.transformer.h[0].mlp.c_fc.weight.detach().clone())
    return (found[0] - found[1]).norm().item()


def test_the_callback_of_the_documentation_is_right_under_accumulation(tmp_path):
    once = moved_by_the_term(tmp_path, 1, in_the_loss=False)
    assert once > 0
    assert moved_by_the_term(tmp_path, 4, in_the_loss=False) == pytest.approx(once, rel=0.05)
    assert moved_by_the_term(tmp_path, 4, in_the_loss=True) > 2 * once  # as the page says
