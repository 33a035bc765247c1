from pegboard.testing.alone import Run as Run
from pegboard.testing.alone import make_call as make_call
from pegboard.testing.alone import run_alone as run_alone
from pegboard.testing.clock import FakeClock as FakeClock
from pegboard.testing.rates import FakeRates as FakeRates
from pegboard.testing.recorder import Recorder as Recorder
from pegboard.testing.recorder import Step as Step
