"""A stand-in for images where there are none: token vectors of one caption an image, which is then held out."""
