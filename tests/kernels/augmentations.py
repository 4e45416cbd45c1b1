"""What the kernels of views are tried with."""

from dataclasses import replace

from hypersphere.views import Augmentation

NOTHING = Augmentation((1, 1), (1, 1), flip=0, jitter=0, brightness=0, contrast=0, saturation=0, hue=0, grey=0)
COLOUR = replace(NOTHING, jitter=1)
EVERYTHING = Augmentation(blur=0.5, solarize=0.5)
ALONE = {  # each operation that follows the crop
    "nothing": NOTHING,
    "flip": replace(NOTHING, flip=1),
    "brightness": replace(COLOUR, brightness=0.4),
    "contrast": replace(COLOUR, contrast=0.4),
    "saturation": replace(COLOUR, saturation=0.9),
    "hue": replace(COLOUR, hue=0.5),
    "grey": replace(NOTHING, grey=1),
    "blur": replace(NOTHING, blur=1.0),
    "solarize": replace(NOTHING, solarize=1),
}
