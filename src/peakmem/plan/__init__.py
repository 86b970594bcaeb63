"""Questions that take more than one estimate: does it fit, what would make it fit, how large may the batch be."""
