"""What can go wrong, each with the exit code that tells it to a script."""

EXIT_USAGE = 2
EXIT_RIGHTS = 3
EXIT_TIMEOUT = 124
EXIT_LAB = 125


class LabError(Exception):
    """The lab could not do what was asked."""

    exit_code = EXIT_LAB


class UsageError(LabError):
    """The command line asks for something that does not exist."""

    exit_code = EXIT_USAGE


class RightsError(LabError):
    """This user or this machine cannot make a lab; `missing` says what lacks, one sentence each."""

    exit_code = EXIT_RIGHTS

    def __init__(self, missing):
        super().__init__("; ".join(missing))
        self.missing = list(missing)


class Interrupted(BaseException):
    """A signal asked the lab to end; it travels past `except Exception` so that only cleaning up sees it."""

    def __init__(self, signal_number):
        super().__init__(signal_number)
        self.exit_code = 128 + signal_number
