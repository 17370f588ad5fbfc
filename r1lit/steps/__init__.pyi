from .run import Run as Run
