"""The Sinkhorn–Knopp algorithm: soft assignments that use all prototypes equally."""

import torch
from torch import Tensor


@torch.no_grad()
def sinkhorn(scores: Tensor, epsilon: float = 0.05, iterations: int = 3) -> Tensor:
    """Assign points to prototypes such that all prototypes are used equally (Cuturi, 2013; Caron et al., 2020).

    It computes Q = diag(u) · exp(scores / epsilon) · diag(v) in logarithms, so no exponential overflows. Each row sums
    to 1; with more iterations each column gets closer to N / K. (Caron et al., eq. 3 to 5, have Q transposed.)

    Args:
        scores: Scores of shape (N, K), of N points for K prototypes; any float dtype.
        epsilon: Regularization of the entropy: smaller values give harder assignments.
        iterations: How often columns and rows are normalized.

    Returns:
        Assignments of shape (N, K) without gradient; float64 if `scores` is, otherwise float32.

    Raises:
        IndexError: If `scores` is not a matrix.

    Example:
        >>> scores = torch.tensor([[1.0, 0.0], [0.9, 0.0], [0.2, 0.0], [0.1, 0.0]])  # all prefer the first
        >>> hs.sphere.sinkhorn(scores).sum(dim=0).round()
        tensor([2., 2.])
    """
    log_q = (scores.double() if scores.dtype == torch.float64 else scores.float()) / epsilon
    for _ in range(iterations):
        log_q = log_q - log_q.logsumexp(dim=0)
        log_q = log_q.log_softmax(dim=1)
    return log_q.exp()
