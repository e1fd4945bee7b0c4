"""Every test is bounded in time: one that hangs shows its stacks and ends the run."""
import faulthandler
import sys

import pytest

# Tests take seconds, and jobs of torch half a minute; a machine that does much else may take many times as long.
LONGEST_SECONDS = 200


@pytest.fixture(autouse=True)
def bounded_in_time():
    faulthandler.dump_traceback_later(LONGEST_SECONDS, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()
