"""Linear probes of a frozen encoder: on random crops, and on stored features."""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hypersphere.data import Loader
from hypersphere.evaluate.features import Accuracy, accuracy, encode, features_of, frozen
from hypersphere.evaluate.stored_features import on_stored_features
from hypersphere.optim import scaled, warmup_cosine
from hypersphere.util.random_numbers import PROBE_ORDER, permutation

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
    """The paper's linear probe: a linear layer on a frozen encoder, trained on random crops and flips.

    The optimizer is SGD with Nesterov momentum 0.9, a cosine schedule and no weight decay. Test images are centre
    crops. The frozen encoder sees many batches at once; the updates then take their features batch by batch.

    Args:
        encoder: A module that maps images of shape (B, C, H, W) to features of shape (B, D).
        train: Labelled images to train the layer on.
        test: Labelled images to measure the accuracy on.
        epochs: Passes over `train`.
        batch: Images per update; all of `train` if that has fewer.
        lr: Peak learning rate for a batch of 256; it scales with the batch.
        seed: Seed of the order of the images.
        precision: dtype in which the encoder computes.
        after_epoch: Called with the number of epochs that are done.

    Returns:
        Top-1 and top-5 accuracy in per cent after the last epoch.

    Example:
        >>> import hypersphere as hs
        >>> from hypersphere.data import load_data
        >>> from hypersphere.views import PIPELINES
        >>> train, test = (images.loader(PIPELINES["digits"], 0, torch.device("cpu")) for images in load_data("digits"))
        >>> hs.evaluate.linear(nn.Flatten(), train, test, epochs=2).top1 > 50
        True
    """
    batch = min(batch, len(train))
    epoch_steps = len(train) // batch
    steps = epochs * epoch_steps
    rates = torch.tensor([warmup_cosine(step, steps, 0, scaled(lr, batch)) for step in range(steps)])
    queries, truth = features_of(test, encoder, precision)
    head = SoftmaxRegression(queries.shape[1], len(train.classes), queries.device)
    step = 0
    for inputs, labels in random_crops(train, epochs, batch, seed, precision, max(1, train.at_once // batch)):
        with frozen(encoder):
            features = encode(encoder, inputs, precision)
        updates = len(labels) // batch
        head.learn(features, labels, batch, rates[step : step + updates])
        step += updates
        if step % epoch_steps == 0:
            after_epoch(step // epoch_steps)
    return accuracy(head.scores(queries), truth)


def random_crops(
    train: Loader, epochs: int, batch: int, seed: int, precision: torch.dtype, batches: int = 1
) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs of the encoder and their labels, in another order each epoch, up to `batches` whole batches at a time."""
    device = train.labels.device

    def order() -> Iterator[tuple[int, Tensor]]:
        for epoch in range(epochs):
            samples = permutation(len(train), seed=seed, epoch=epoch, stream=PROBE_ORDER, device=device)
            for some in samples[: len(train) // batch * batch].split(batches * batch):
                yield epoch, some

    return train.cropped(order(), precision if device.type == "cuda" else torch.float32)


class SoftmaxRegression:
    """A linear layer trained by SGD with Nesterov momentum; the gradient of the cross-entropy in closed form."""

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


@on_stored_features
def linear_cached(features: Tensor, labels: Tensor, queries: Tensor, truth: Tensor, decay: float = 1.0) -> Accuracy:
    """Accuracy of logistic regression on stored, standardized features, solved to its optimum.

    The objective is Σ cross-entropy + ½ decay ‖W‖².

    Args:
        features: Features of shape (N, D), a tensor or an array, to fit.
        labels: Classes of shape (N,), integers; features with a label below 0 are ignored.
        queries: Features of shape (M, D) to classify.
        truth: Classes of the queries, of shape (M,). Classes that `labels` does not have are always wrong.
        decay: Weight of the L2 penalty.

    Returns:
        Top-1 and top-5 accuracy in per cent.

    Raises:
        ValueError: If shapes do not match, or `decay` is negative.

    Example:
        >>> import hypersphere as hs
        >>> features, labels = torch.tensor([[0.0], [1.0], [2.0], [3.0]]), torch.tensor([0, 0, 1, 1])
        >>> hs.evaluate.linear_cached(features, labels, features, labels)
        Accuracy(top1=100.0, top5=100.0)
    """
    if not decay >= 0:
        raise ValueError(f"decay must be at least 0, got {decay}")
    mean, scale = mean_and_scale(features)
    features, queries = (features - mean) / scale, (queries - mean) / scale
    weight, bias = softmax_regression(features, labels, int(labels.max()) + 1, decay)
    with torch.no_grad():
        return accuracy(queries @ weight.T + bias, truth)


def mean_and_scale(features: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each dimension; 1 for a constant one."""
    std = features.std(dim=0)
    return features.mean(dim=0), torch.where(std > 0, std, 1)


def softmax_regression(
    features: Tensor, labels: Tensor, classes: int, decay: float, start: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """The minimum of Σ cross-entropy + ½ decay ‖W‖², by L-BFGS.

    Args:
        features: Features of shape (N, D), best standardized.
        labels: Classes of shape (N,), from 0 to `classes` − 1.
        classes: Number of classes C.
        decay: Weight of the L2 penalty: 1 / C of scikit-learn's `LogisticRegression`.
        start: Where to begin: weights and biases of a similar problem. By default zeros.

    Returns:
        Weights of shape (C, D) and biases of shape (C,).
    """
    weight, bias = (
        (torch.zeros(classes, features.shape[1], device=features.device), torch.zeros(classes, device=features.device))
        if start is None
        else (start[0].clone(), start[1].clone())
    )
    weight.requires_grad_()
    bias.requires_grad_()
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=200, history_size=20, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(features @ weight.T + bias, labels)
        loss = loss + 0.5 * decay * weight.square().sum() / len(labels)
        loss.backward()
        return loss

    optimizer.step(objective)
    return weight.detach(), bias.detach()
