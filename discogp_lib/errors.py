"""What a user can get wrong, each as one sentence that says what to do about it."""


class DiscoGPError(Exception):
    """A mistake of the user's or of the machine's, told in one sentence; never a bug of ours."""


class CheckpointError(DiscoGPError):
    """The model's files are missing, damaged or of an architecture that is not supported."""


class TaskError(DiscoGPError):
    """The task does not exist, its data cannot be had, or its file is not right."""


class SheafError(DiscoGPError):
    """A sheaf file is damaged or of another version, or two sheaves do not belong to one model."""


class ConfigError(DiscoGPError):
    """A setting, or a combination of settings, makes no sense."""


class RunError(DiscoGPError):
    """A run cannot be started, or its record cannot be trusted."""
