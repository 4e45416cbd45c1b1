"""What a linear layer reads from a frozen encoder: the two probes."""

from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hypersphere.data import Images
from hypersphere.draws import PROBE_ORDER, permutation
from hypersphere.evaluate.features import Accuracy, View, accuracy, extract, frozen
from hypersphere.optim import scaled, warmup_cosine


class ProbingViews(Protocol):
    def probing(self, images: Tensor, sample: Tensor, epoch: int) -> Tensor: ...


def linear(
    encoder: nn.Module,
    train: Images,
    test: Images,
    views: ProbingViews,
    centre: View,
    *,
    epochs: int = 80,
    batch: int = 100,
    lr: float = 0.2,
    seed: int = 0,
    after_epoch: Callable[[int], None] = lambda epoch: None,
) -> Accuracy:
    """The paper's probe: SGD (Nesterov 0.9, cosine, no decay) on fresh random crops and flips; centre crop at test;
    the accuracy after the last epoch."""
    features = extract(encoder, test.pixels, centre)
    batch = min(batch, len(train))
    head = nn.Linear(features.shape[1], len(train.classes), device=features.device)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    optimizer = torch.optim.SGD(head.parameters(), lr=lr, momentum=0.9, nesterov=True)
    steps, step = epochs * (len(train) // batch), 0
    for epoch in range(epochs):
        order = permutation(len(train), seed=seed, epoch=epoch, stream=PROBE_ORDER, device=train.labels.device)
        for sample in order[: len(order) // batch * batch].split(batch):
            with frozen(encoder):
                inputs = encoder(views.probing(train.pixels[sample], sample, epoch)).float()
            optimizer.param_groups[0]["lr"] = warmup_cosine(step, steps, 0, scaled(lr, batch))
            F.cross_entropy(head(inputs), train.labels[sample]).backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
        after_epoch(epoch + 1)
    with torch.no_grad():
        return accuracy(head(features), test.labels)


def linear_cached(features: Tensor, labels: Tensor, queries: Tensor, truth: Tensor, decay: float = 1.0) -> Accuracy:
    """Logistic regression on stored features, to its optimum: Σ cross-entropy + ½ decay ‖W‖², inputs standardized."""
    mean, std = features.mean(dim=0), features.std(dim=0)
    scale = torch.where(std > 0, std, 1)
    features, queries = (features - mean) / scale, (queries - mean) / scale
    classes = int(labels.max()) + 1
    weight = torch.zeros(classes, features.shape[1], device=features.device, requires_grad=True)
    bias = torch.zeros(classes, device=features.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=200, history_size=20, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(features @ weight.T + bias, labels)
        loss = loss + 0.5 * decay * weight.square().sum() / len(labels)
        loss.backward()
        return loss

    optimizer.step(objective)
    with torch.no_grad():
        return accuracy(queries @ weight.T + bias, truth)
