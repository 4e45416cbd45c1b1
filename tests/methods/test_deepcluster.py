"""DeepCluster and the k-means of its clusters, against a literal reading of its equations in float64."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from sklearn.cluster import KMeans

from hypersphere.data.loader import center_view
from hypersphere.errors import UserError
from hypersphere.evaluate import extract
from hypersphere.methods import DeepCluster
from hypersphere.runs.build import view_pipeline
from hypersphere.runs.pretraining import pretrain
from hypersphere.runs.run import initial_encoder
from hypersphere.sphere import spherical_kmeans
from hypersphere.train.checkpoint import restore
from hypersphere.views import folder_pipeline
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
    method.start_epoch(lambda: features.split(7))
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


def test_deepcluster_needs_clusters_before_its_first_step():
    method, data = made(DeepCluster, prototypes=3, times=2), batch()
    with pytest.raises(UserError, match="no clusters yet: call start_epoch"):
        method(data)
    method.start_trial(20)
    assert torch.equal(method.labels, (torch.arange(20) % 3).expand(2, -1))
    method(data)


def test_deepcluster_starts_elsewhere_each_time_each_epoch_and_for_each_seed():
    features = torch.randn(60, 6)
    one, again = (made(DeepCluster, prototypes=9) for _ in range(2))
    again.load_state_dict(one.state_dict())
    other = made(DeepCluster, prototypes=9, seed=1)
    other.load_state_dict(one.state_dict())
    for method in (one, again, other):
        method.start_epoch(lambda: features.split(7))
    assert torch.equal(one.labels, again.labels)
    assert not torch.equal(one.labels, other.labels)
    assert not torch.equal(one.labels[0], one.labels[1])
    held, before = one.labels, one.labels.clone()
    one.start_epoch(lambda: features.split(7))
    assert one.labels is held  # where a recorded update reads them
    assert not torch.equal(one.labels, before)


def test_a_deepcluster_run_is_restored_with_the_labels_of_its_epoch(tmp_path):
    method, fresh = made(DeepCluster, prototypes=3), made(DeepCluster, prototypes=3)
    method.start_epoch(lambda: [torch.randn(20, 6)])
    alone = made(DeepCluster, prototypes=3)
    restore(fresh, method.state_dict(), tmp_path)
    alone.load_state_dict(method.state_dict())
    data = batch()
    for other in (fresh, alone):
        torch.testing.assert_close(other(data).loss, method(data).loss)


def test_clusters_need_images(tmp_path):
    with pytest.raises(UserError, match="`prototypes` must be at most the number of images, 8, got 9"):
        made(DeepCluster, prototypes=9).start_epoch(lambda: [torch.randn(8, 6)])


def test_images_of_a_folder_are_clustered_too(tmp_path, monkeypatch):
    """By the features of each file's middle, in the order of their numbers; a broken one has a neighbour's."""
    folder = tmp_path / "images"
    folder.mkdir()
    pictures = [Image.fromarray(torch.randint(0, 256, (40, 32, 3), dtype=torch.uint8).numpy()) for _ in range(70)]
    for number, picture in enumerate(pictures):
        picture.save(folder / f"{number:02}.png")
    (folder / "30.png").write_bytes(b"no image")
    seen, start_epoch = [], DeepCluster.start_epoch

    def start(method, features):
        seen.append(torch.cat(list(features())))
        start_epoch(method, lambda: seen[-1:])

    monkeypatch.setattr(DeepCluster, "start_epoch", start)
    options = {
        "epochs": 2,
        "prototypes": 3,
        "hidden": 16,
        "projection": 8,
        "small_crops": 0,
        "encoder": "hypersphere/digits",
    }
    options |= {"device": "cpu", "workers": 0, "knn_every": 0, "progress": False, "size": 8}
    run = pretrain("deepcluster", str(folder), out=tmp_path / "run", **options)
    side = folder_pipeline(8).resize
    middle = [picture.resize((side, side), Image.Resampling.BICUBIC, box=(0, 4, 32, 36)) for picture in pictures]
    pixels = torch.stack([torch.from_numpy(np.array(each)).permute(2, 0, 1) for each in middle])
    wanted = extract(initial_encoder(run.config), pixels, center_view(view_pipeline(run.config)))
    whole = torch.arange(70) != 30
    torch.testing.assert_close(seen[0][whole], wanted[whole], atol=1e-4, rtol=1e-4)
    assert len(seen) == 2
    assert seen[1].shape == seen[0].shape == wanted.shape
    assert run.method.labels.shape == (3, 70)
