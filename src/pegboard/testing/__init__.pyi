from pegboard.testing.fake_clock import FakeClock as FakeClock
from pegboard.testing.fake_rates import FakeRates as FakeRates
from pegboard.testing.fixed_tokens import fixed_tokens as fixed_tokens
from pegboard.testing.recorder import Recorder as Recorder
from pegboard.testing.recorder import Step as Step
from pegboard.testing.single_call import Run as Run
from pegboard.testing.single_call import make_call as make_call
from pegboard.testing.single_call import run_alone as run_alone
