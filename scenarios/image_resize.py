"""Resize one photo-sized image per step."""

PARAMS = {
    "library": ["skimage", "opencv"],
    "width": [640, 1920, 4000],
    "antialias": [False, True],
}


def setup(library="opencv", width=1920, antialias=True):
    """Return the step. The image is 3:2 with 8 bits per channel; it becomes a quarter as wide. Both libraries
    round to 8 bits again."""
    import numpy as np

    image = np.random.RandomState(0).randint(0, 256, (width * 2 // 3, width, 3)).astype(np.uint8)
    height, small = image.shape[0] // 4, width // 4
    if library == "opencv":
        import cv2

        print("OpenCV %s" % cv2.__version__)
        way = cv2.INTER_AREA if antialias else cv2.INTER_LINEAR

        def step():
            cv2.resize(image, (small, height), interpolation=way)

        return step

    import skimage
    from skimage.transform import resize

    print("scikit-image %s" % skimage.__version__)

    def step():
        resize(image, (height, small), anti_aliasing=antialias, preserve_range=True).astype(np.uint8)

    return step
