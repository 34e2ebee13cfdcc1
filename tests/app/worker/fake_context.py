"""The context of a job without a worker."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.messages import CompileJobResult, Progress, StepMessage


@dataclass
class FakeContext:
    """Obeys app.worker.handlers.base.Context."""

    is_cancelled: bool = False
    waited_s: float = 0.0
    values: dict[str, bytes] = field(default_factory=dict)

    published: list[StepMessage] = field(default_factory=list)
    published_sizes: list[CompileJobResult] = field(default_factory=list)
    compilation: CompileJobResult | None = None

    def progress(self, event: Progress) -> None:
        pass

    def publish(self, message: StepMessage | CompileJobResult) -> None:
        if isinstance(message, StepMessage):
            self.published.append(message)
        else:
            self.published_sizes.append(message)

    def cancelled(self) -> bool:
        return self.is_cancelled

    def load(self, key: str, renew_s: float = 0.0) -> bytes | None:
        return self.values.get(key)

    def save(self, key: str, value: bytes, ttl_s: float, owner: str = "") -> None:
        self.values[key] = value

    def discard(self, key: str, value: bytes) -> None:
        self.values.pop(key, None)
