"""DeepCluster and the k-means of its clusters, against a literal reading of its equations in float64."""

import pytest
import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans

from hypersphere.build import build_method
from hypersphere.config import recipe
from hypersphere.errors import UserError
from hypersphere.methods import DeepCluster
from hypersphere.sphere import spherical_kmeans
from hypersphere.train.checkpoint import restore
from tests.methods.small import assert_same_loss, batch, in_double, literal_cosines, literal_cross_entropy, made


def separable(clusters=5, each=30, dimensions=8):
    centres = F.normalize(torch.randn(clusters, dimensions))
    noise = 0.05 * torch.randn(clusters, each, dimensions)
    return F.normalize((centres[:, None] + noise).flatten(0, 1))[torch.randperm(clusters * each)]


def test_k_means_is_that_of_scikit_learn_on_separable_points():
    points = separable()
    start = points[:12]  # several in a cluster: those with no points must stay
    centroids, labels = spherical_kmeans(points, start, 20)
    theirs = KMeans(12, init=start.numpy(), n_init=1, max_iter=20, tol=0).fit(points.numpy())
    assert (labels.numpy() == theirs.labels_).mean() > 0.99  # theirs are not of length 1
    torch.testing.assert_close(centroids.norm(dim=1), torch.ones(12))
    gap = centroids - F.normalize(torch.from_numpy(theirs.cluster_centers_))
    assert gap.norm(dim=1).max() < 0.05


def test_k_means_leaves_a_centroid_without_points_where_it_is():
    points, far = separable(1), -torch.ones(1, 8)
    start = torch.cat([points[:1], far * points[:1].sign()])
    centroids, labels = spherical_kmeans(points, start, 3)
    assert not labels.any()
    torch.testing.assert_close(centroids[1:], F.normalize(start[1:]))
    torch.testing.assert_close(centroids[0], F.normalize(points.sum(0), dim=0))


def test_deepcluster_classifies_images_by_the_clusters_of_their_projections():
    method, data = made(DeepCluster, prototypes=3, times=2), batch()
    features = torch.randn(20, 6)
    method.start_epoch(lambda: features)
    assert method.labels.shape == (2, 20)
    method.projector.eval()
    projected = F.normalize(method.projector(features)).detach()
    method.projector.train()
    for centroids, labels in zip(method.centroids, method.labels, strict=True):
        assert torch.equal(labels, (projected @ centroids.T).argmax(1))
        for k in labels.unique():
            members = projected[labels == k].sum(0)
            assert F.cosine_similarity(members, centroids[k], dim=0) > 0.999
    twin, _, z = in_double(method, data)
    wanted = 0
    for each in z:
        for centroids, labels in zip(twin.centroids, twin.labels, strict=True):
            targets = F.one_hot(labels[data.sample], 3).double()
            wanted = wanted + literal_cross_entropy(targets, literal_cosines(each, centroids), 0.1) / 6
    assert_same_loss(method, method(data), twin, wanted, "encoder", "projector")
    assert not method.centroids.requires_grad


def test_deepcluster_starts_elsewhere_each_time_each_epoch_and_for_each_seed():
    features = torch.randn(60, 6)
    one, again = (made(DeepCluster, prototypes=9) for _ in range(2))
    again.load_state_dict(one.state_dict())
    other = made(DeepCluster, prototypes=9, seed=1)
    other.load_state_dict(one.state_dict())
    for method in (one, again, other):
        method.start_epoch(lambda: features)
    assert torch.equal(one.labels, again.labels)
    assert not torch.equal(one.labels, other.labels)
    assert not torch.equal(one.labels[0], one.labels[1])
    held, before = one.labels, one.labels.clone()
    one.start_epoch(lambda: features)
    assert one.labels is held  # where a recorded update reads them
    assert not torch.equal(one.labels, before)


def test_a_deepcluster_run_is_restored_with_the_labels_of_its_epoch(tmp_path):
    method, fresh = made(DeepCluster, prototypes=3), made(DeepCluster, prototypes=3)
    method.start_epoch(lambda: torch.randn(20, 6))
    restore(fresh, method.state_dict(), tmp_path)
    data = batch()
    torch.testing.assert_close(fresh(data).loss, method(data).loss)


def test_clusters_need_images(tmp_path):
    with pytest.raises(UserError, match="`prototypes` 9 is more than the 8 images to be clustered"):
        made(DeepCluster, prototypes=9).start_epoch(lambda: torch.randn(8, 6))
    with pytest.raises(UserError, match="clusters images held in memory, not the files of imagenet"):
        build_method(recipe("deepcluster", "imagenet"), 3)
