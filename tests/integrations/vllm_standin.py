"""vLLM's interface to its statistics, in the shapes of two versions, with the computations that vLLM itself makes.

NEW is of 2026: a request's id, mm_cache_stats. OLD is of 2025: neither, and other names. vLLM is not needed.
"""

import sys
import time
import types
from abc import ABC, abstractmethod
from dataclasses import dataclass, field


class OldStatLoggerBase(ABC):
    @abstractmethod
    def __init__(self, vllm_config, engine_index=0): ...

    @abstractmethod
    def record(self, scheduler_stats, iteration_stats, engine_idx=0): ...

    @abstractmethod
    def log_engine_initialized(self): ...

    def log(self):
        pass


class NewStatLoggerBase(ABC):
    @abstractmethod
    def __init__(self, vllm_config, engine_index=0): ...

    @abstractmethod
    def record(self, scheduler_stats, iteration_stats, mm_cache_stats=None, engine_idx=0): ...

    @abstractmethod
    def log_engine_initialized(self): ...

    def log(self):
        pass

    def record_sleep_state(self, is_awake, level):
        pass


class LaterStatLoggerBase(NewStatLoggerBase):
    """As a vLLM to come may have it."""

    @abstractmethod
    def record_something_else(self, something):
        raise NotImplementedError

    @abstractmethod
    async def flush(self): ...


@dataclass
class OldSchedulerStats:
    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    gpu_cache_usage: float = 0.0


@dataclass
class NewSchedulerStats:
    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    kv_cache_usage: float = 0.0


@dataclass
class OldFinishedRequestStats:
    finish_reason: object
    e2e_latency: float = 0.0
    num_prompt_tokens: int = 0
    num_generation_tokens: int = 0
    inference_time: float = 0.0
    decode_time: float = 0.0


@dataclass
class NewFinishedRequestStats:
    finish_reason: object
    request_id: object = None
    e2e_latency: float = 0.0
    num_prompt_tokens: int = 0
    num_generation_tokens: int = 0
    max_tokens_param: object = None
    queued_time: float = 0.0
    prefill_time: float = 0.0
    inference_time: float = 0.0
    decode_time: float = 0.0
    mean_time_per_output_token: float = 0.0
    is_corrupted: bool = False
    num_cached_tokens: int = 0


@dataclass
class IterationStats:
    iteration_timestamp: float = field(default_factory=time.time)
    num_generation_tokens: int = 0
    num_preempted_reqs: int = 0
    finished_requests: list = field(default_factory=list)
    max_num_generation_tokens_iter: list = field(default_factory=list)
    n_params_iter: list = field(default_factory=list)
    time_to_first_tokens_iter: list = field(default_factory=list)


@dataclass
class Version:
    base: type
    scheduler: type
    finished: type
    cache_use: str
    has_ids: bool

    def request(self, iteration, arrival, request_id=None, reason="STOP", **fields):
        """Adds a request that ends in this iteration: `arrival` is of time.time(), as in vLLM."""
        if self.has_ids:
            fields["request_id"] = request_id
        known = self.finished.__dataclass_fields__
        iteration.finished_requests.append(self.finished(
            finish_reason=types.SimpleNamespace(name=reason), e2e_latency=iteration.iteration_timestamp - arrival,
            **{name: value for name, value in fields.items() if name in known}))

    def record(self, logger, scheduler=None, iteration=None):
        """Calls record() as this version does."""
        if self.has_ids:
            logger.record(scheduler_stats=scheduler, iteration_stats=iteration, mm_cache_stats=None, engine_idx=0)
        else:
            logger.record(scheduler, iteration, 0)


OLD = Version(OldStatLoggerBase, OldSchedulerStats, OldFinishedRequestStats, "gpu_cache_usage", False)
NEW = Version(NewStatLoggerBase, NewSchedulerStats, NewFinishedRequestStats, "kv_cache_usage", True)


def install(base):
    """Makes `from vllm.v1.metrics.loggers import StatLoggerBase` find this class."""
    for name in ("vllm", "vllm.v1", "vllm.v1.metrics", "vllm.v1.metrics.loggers"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["vllm.v1.metrics.loggers"].StatLoggerBase = base
