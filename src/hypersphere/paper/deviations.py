"""Where our runs differ from the paper, or read a passage that can be read in several ways."""

from typing import NamedTuple


class Deviation(NamedTuple):
    point: str
    paper: str
    here: str


DEVIATIONS = (
    Deviation("Length", "300 epochs", "300, and as protocols of their own 100 epochs and *tuned* options"),
    Deviation(
        "Runs and images behind a number",
        '"average of three runs"; by its digits, one run on 5,000 images',
        "n runs on the 10,000 test images, each seed listed",
    ),
    Deviation(
        "Options",
        "chosen on validation images, not given in full",
        "*as written*: the text's; *tuned*: chosen for BYOL on 5,000 validation images, the same for all variants",
    ),
    Deviation("BYOL's loss", "one direction (eq:byol)", "symmetric over the two views, as in BYOL"),
    Deviation(
        "Layers that MHE regularizes",
        "all (main text), or projector and predictor (appendix)",
        "each table's own: tab:sections names them; the predictor in tab:mhe, tab:weight and tab:batch, whose numbers "
        "equal that cell of tab:sections; all in tab:bn; projector and predictor in tab:cifar and the figures",
    ),
    Deviation("Weight of MHE", "1 (main text), 10 (appendix)", "10 on CIFAR and STL-10, 1 on ImageNet"),
    Deviation(
        "Learning rate of tab:batch",
        'scaled "with the batch size"',
        "two readings, each with its rows: by the 1024 images of an update, and by the images seen at once",
    ),
    Deviation(
        "First layers on STL-10", 'changed "for the CIFAR datasets"', "ImageNet's (7 × 7, stride 2, max-pooling)"
    ),
    Deviation("fig:g2, fig:knn", "STL-10", "CIFAR-10"),
    Deviation("Figures on the circle", "length not given", "AlexNet with two outputs, 100 epochs"),
    Deviation("Without BatchNorm (tab:bn)", '"BN ✗"', "no normalization at all in encoder and heads"),
    Deviation("Linear probe", "80 epochs, batch 100, lr 0.2", "the same, lr scaled by batch/256, last epoch"),
    Deviation("ImageNet validation images", "the last 10,009 in TensorFlow's order", "10,009 drawn by a seed"),
    Deviation("Arithmetic", "not given", "bfloat16 on one H200"),
)
