"""Codes that use all prototypes equally: the Sinkhorn–Knopp algorithm."""

import torch
from torch import Tensor


@torch.no_grad()
def sinkhorn(scores: Tensor, epsilon: float = 0.05, iterations: int = 3) -> Tensor:
    """Q = diag(u) · exp(scores / ε) · diag(v), N (points) × K (prototypes): every row sums to 1, and the more
    iterations, the closer every column is to N / K (Cuturi 2013; Caron et al. 2020, eq. 3 to 5, there transposed).

    In logarithms, so that no exponential overflows. The rows come last: each is a distribution at any time.
    """
    log_q = (scores.double() if scores.dtype == torch.float64 else scores.float()) / epsilon
    for _ in range(iterations):
        log_q = log_q - log_q.logsumexp(dim=0)
        log_q = log_q.log_softmax(dim=1)
    return log_q.exp()
