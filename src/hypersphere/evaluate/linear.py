"""What a linear layer reads from a frozen encoder: the two probes."""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hypersphere.data import Loader
from hypersphere.evaluate.features import Accuracy, accuracy, encode, features_of, frozen
from hypersphere.evaluate.stored import of_stored
from hypersphere.optim import scaled, warmup_cosine
from hypersphere.util.draws import PROBE_ORDER, permutation

MOMENTUM = 0.9  # Nesterov's


def linear(
    encoder: nn.Module,
    train: Loader,
    test: Loader,
    *,
    epochs: int = 80,
    batch: int = 100,
    lr: float = 0.2,
    seed: int = 0,
    precision: torch.dtype = torch.float32,
    after_epoch: Callable[[int], None] = lambda epoch: None,
) -> Accuracy:
    """The paper's probe: SGD (Nesterov 0.9, cosine, no decay) on fresh random crops and flips; centre crop at test;
    the accuracy after the last epoch.

    The encoder is frozen, so it sees many batches at once; the updates then take their features batch by batch.
    """
    batch = min(batch, len(train))
    steps = epochs * (len(train) // batch)
    rates = torch.tensor([warmup_cosine(step, steps, 0, scaled(lr, batch)) for step in range(steps)])
    block = max(1, train.at_once // batch) * batch
    queries, truth = features_of(test, encoder, precision)
    head = SoftmaxRegression(queries.shape[1], len(train.classes), queries.device)
    kind = precision if queries.is_cuda else torch.float32
    step = 0
    for inputs, labels in train.cropped(fresh_order(train, epochs, batch, block, seed), kind):
        with frozen(encoder):
            features = encode(encoder, inputs, precision)
        updates = len(labels) // batch
        head.learn(features, labels, batch, rates[step : step + updates])
        step += updates
        if step % (len(train) // batch) == 0:
            after_epoch(step // (len(train) // batch))
    return accuracy(head.scores(queries), truth)


def fresh_order(train: Loader, epochs: int, batch: int, block: int, seed: int) -> Iterator[tuple[int, Tensor]]:
    """Epoch after epoch, another each: so many images at once, of whole batches."""
    device = train.labels.device
    for epoch in range(epochs):
        order = permutation(len(train), seed=seed, epoch=epoch, stream=PROBE_ORDER, device=device)
        for sample in order[: len(order) // batch * batch].split(block):
            yield epoch, sample


class SoftmaxRegression:
    """A linear layer learnt by SGD with Nesterov momentum; the gradient of the cross-entropy in closed form."""

    def __init__(self, features: int, classes: int, device: torch.device) -> None:
        self.weight = torch.zeros(features + 1, classes, device=device)  # the last row is the bias
        self.velocity = torch.zeros_like(self.weight)

    def learn(self, features: Tensor, labels: Tensor, batch: int, rates: Tensor) -> None:
        """One update from each batch: ∂/∂W = xᵀ (softmax(xW) − y) / B."""
        inputs = F.pad(features, (0, 1), value=1.0)
        truth = F.one_hot(labels, self.weight.shape[1]).float()
        for x, y, rate in zip(inputs.split(batch), truth.split(batch), rates.tolist(), strict=True):
            gradient = x.T @ (((x @ self.weight).softmax(dim=1) - y) / len(x))
            self.velocity.mul_(MOMENTUM).add_(gradient)
            self.weight.sub_(gradient.add_(self.velocity, alpha=MOMENTUM), alpha=rate)

    def scores(self, features: Tensor) -> Tensor:
        return features @ self.weight[:-1] + self.weight[-1]


@of_stored
def linear_cached(features: Tensor, labels: Tensor, queries: Tensor, truth: Tensor, decay: float = 1.0) -> Accuracy:
    """Logistic regression on stored features, to its optimum: Σ cross-entropy + ½ decay ‖W‖², inputs standardized."""
    if not decay >= 0:
        raise ValueError(f"decay must be at least 0, not {decay}")
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
