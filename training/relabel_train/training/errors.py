"""What a user can cause in training."""


class FitError(ValueError):
    """Options, data or a checkpoint that training cannot work with; says what, where and what to do."""
