"""The errors a user can meet. Each message is one line: what, where, how to mend it."""


class ParavtError(Exception):
    """Base of every error that the user, not the program, can mend. The command prints it and exits 1."""


class VideoError(ParavtError):
    """A video cannot be read: missing, empty, truncated, not a video, or its decoding was late."""


class ModelError(ParavtError):
    """A model's files cannot be found, loaded or used for this."""


class SettingsError(ParavtError):
    """A setting or an input row names something that does not exist or does not fit."""


class BackendError(ParavtError):
    """The backend answered no, or not at all, and asking again would not help (or has not helped)."""


class ContextLimitError(BackendError):
    """The prompt and the tokens asked for do not fit the model's context."""
