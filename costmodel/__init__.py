"""Cost models: what a step costs. A user's own is any class with ``seconds(step)``."""

from eggshard.costmodel.alpha_beta import PRESETS, AlphaBeta
from eggshard.costmodel.counting import Messages, WireBytes
from eggshard.costmodel.protocol import CostModel, StepInfo

__all__ = ["PRESETS", "AlphaBeta", "CostModel", "Messages", "StepInfo", "WireBytes"]
