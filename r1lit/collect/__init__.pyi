from .ahead import Ahead as Ahead
from .base import Collected as Collected, Collector as Collector
from .dynamic_sampling import DynamicSampling as DynamicSampling
from .fresh import Fresh as Fresh
