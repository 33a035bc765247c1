from pegboard.middleware.masking import mask as mask
from pegboard.middleware.rates import MemoryRates as MemoryRates
from pegboard.middleware.rates import RateLimit as RateLimit
from pegboard.middleware.rates import RateStore as RateStore
from pegboard.middleware.shared_rates import RedisRates as RedisRates
