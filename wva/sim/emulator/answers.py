"""Bodies of answers, in the format of each API: whole, or as the events of a stream with one event for each token."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from wva.sim.emulator.openai import GenerationRequest

_WORD: Final = "word "


@dataclass(frozen=True, slots=True)
class PlannedAnswer:
    """One answer of a request. Lengths are tokens; ``cut`` says that it ends at a limit and not by itself."""

    prompt_tokens: int
    output_tokens: int
    cut: bool

    @property
    def reason(self) -> str:
        """Why it ends, as OpenAI calls it."""
        return "length" if self.cut else "stop"


class AnswerBodies(ABC):
    """The bodies for one request; each API has a subclass."""

    def __init__(
        self, request: GenerationRequest, answers: Sequence[PlannedAnswer], *, model: str, identity: str, created: int
    ) -> None:
        """Take what all bodies have in common; ``created`` is in seconds since the epoch."""
        self._answers = answers
        self._options = request.options
        self._per_prompt = request.n
        self._model = model
        self._identity = identity
        self._created = created

    @abstractmethod
    def whole(self) -> bytes:
        """Return the answer in one piece."""

    @abstractmethod
    def begin(self) -> bytes:
        """Return the events before the first token."""

    @abstractmethod
    def token(self, index: int, count: int) -> bytes:
        """Return the event of a token: token number ``count``, from 1, of the answer ``index``."""

    @abstractmethod
    def end(self) -> bytes:
        """Return the events after the last token."""

    def _reason(self, index: int, count: int) -> str | None:
        answer = self._answers[index]
        return answer.reason if count == answer.output_tokens else None


class CompletionBodies(AnswerBodies):
    """The bodies of ``/v1/completions``."""

    _prefix = "cmpl"
    _kind = _piece_kind = "text_completion"

    def whole(self) -> bytes:
        """Return the answer in one piece."""
        choices = [
            self._choice(index, _WORD * answer.output_tokens, answer.reason, whole=True)
            for index, answer in enumerate(self._answers)
        ]
        usage = self._usage(sum(answer.output_tokens for answer in self._answers))
        return msgspec.json.encode({**self._head(self._kind), "choices": choices, "usage": usage})

    def begin(self) -> bytes:
        """Return no event: the first one is the first token."""
        return b""

    def token(self, index: int, count: int) -> bytes:
        """Return the event of a token; the last one has the reason."""
        return self._piece(self._choice(index, _WORD, self._reason(index, count)), count, index)

    def end(self) -> bytes:
        """Return the usage if it is wanted, and the end mark."""
        usage = self._usage(sum(answer.output_tokens for answer in self._answers))
        usage_event = _data({**self._head(self._piece_kind), "choices": [], "usage": usage})
        return (usage_event if self._options.include_usage else b"") + b"data: [DONE]\n\n"

    def _choice(self, index: int, text: str, reason: str | None, *, whole: bool = False) -> dict[str, Any]:
        del whole  # both forms are alike here
        return {"index": index, "text": text, "logprobs": None, "finish_reason": reason, "stop_reason": None}

    def _piece(self, choice: dict[str, Any], count: int, index: int) -> bytes:
        body = {**self._head(self._piece_kind), "choices": [choice]}
        if self._options.include_usage and self._options.continuous_usage_stats:
            body["usage"] = self._usage(count, prompt_tokens=self._answers[index].prompt_tokens)
        return _data(body)

    def _head(self, kind: str) -> dict[str, Any]:
        identity = f"{self._prefix}-{self._identity}"
        return {"id": identity, "object": kind, "created": self._created, "model": self._model}

    def _usage(self, count: int, *, prompt_tokens: int | None = None) -> dict[str, Any]:
        """Return the usage; the tokens of a prompt with several answers count once."""
        prompt = self._prompt_tokens() if prompt_tokens is None else prompt_tokens
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + count,
            "completion_tokens": count,
            "prompt_tokens_details": None,
        }

    def _prompt_tokens(self) -> int:
        return sum(answer.prompt_tokens for answer in self._answers[:: self._per_prompt])


class ChatBodies(CompletionBodies):
    """The bodies of ``/v1/chat/completions``."""

    _prefix = "chatcmpl"
    _kind = "chat.completion"
    _piece_kind = "chat.completion.chunk"

    def begin(self) -> bytes:
        """Return the events that name the role."""
        role = {"delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        return b"".join(self._piece({"index": index, **role}, 0, index) for index in range(len(self._answers)))

    def _choice(self, index: int, text: str, reason: str | None, *, whole: bool = False) -> dict[str, Any]:
        content = {"message": {"role": "assistant", "content": text}} if whole else {"delta": {"content": text}}
        return {"index": index, **content, "logprobs": None, "finish_reason": reason, "stop_reason": None}


class MessageBodies(AnswerBodies):
    """The bodies of ``/v1/messages``, Anthropic's API."""

    def whole(self) -> bytes:
        """Return the answer in one piece."""
        (answer,) = self._answers
        text = [{"type": "text", "text": _WORD * answer.output_tokens}]
        return msgspec.json.encode(self._message(text, self._stop_reason(), answer.output_tokens))

    def begin(self) -> bytes:
        """Return the events that open the message and its text."""
        block = {"index": 0, "content_block": {"type": "text", "text": ""}}
        message = {"message": self._message([], None, 0)}
        return _event("message_start", message) + _event("content_block_start", block)

    def token(self, index: int, count: int) -> bytes:
        """Return the event of a token."""
        del count
        return _event("content_block_delta", {"index": index, "delta": {"type": "text_delta", "text": _WORD}})

    def end(self) -> bytes:
        """Return the events that close the text and the message, with the reason and the usage."""
        change = {
            "delta": {"stop_reason": self._stop_reason(), "stop_sequence": None},
            "usage": self._usage(self._answers[0].output_tokens),
        }
        closed = _event("content_block_stop", {"index": 0}) + _event("message_delta", change)
        return closed + _event("message_stop", {})

    def _message(self, content: list[dict[str, str]], reason: str | None, count: int) -> dict[str, Any]:
        return {
            "id": f"msg_{self._identity}",
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self._model,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": self._usage(count),
        }

    def _usage(self, count: int) -> dict[str, int]:
        return {"input_tokens": self._answers[0].prompt_tokens, "output_tokens": count}

    def _stop_reason(self) -> str:
        return "max_tokens" if self._answers[0].cut else "end_turn"


class ResponseBodies(AnswerBodies):
    """The bodies of ``/v1/responses``."""

    def whole(self) -> bytes:
        """Return the answer in one piece."""
        return msgspec.json.encode(self._response(done=True))

    def begin(self) -> bytes:
        """Return the events that open the response and its text."""
        return (
            _event("response.created", {"response": self._response(done=False)})
            + _event("response.in_progress", {"response": self._response(done=False)})
            + _event("response.output_item.added", {"output_index": 0, "item": self._item("", "in_progress")})
            + _event("response.content_part.added", {**self._place(), "part": self._text("")})
        )

    def token(self, index: int, count: int) -> bytes:
        """Return the event of a token."""
        del index, count
        return _event("response.output_text.delta", {**self._place(), "delta": _WORD})

    def end(self) -> bytes:
        """Return the events that close the text and the response, with the usage."""
        text = _WORD * self._answers[0].output_tokens
        last = self._response(done=True)
        return (
            _event("response.output_text.done", {**self._place(), "text": text})
            + _event("response.content_part.done", {**self._place(), "part": self._text(text)})
            + _event("response.output_item.done", {"output_index": 0, "item": self._item(text, "completed")})
            + _event(f"response.{last['status']}", {"response": last})
        )

    def _response(self, *, done: bool) -> dict[str, Any]:
        (answer,) = self._answers
        status = ("incomplete" if answer.cut else "completed") if done else "in_progress"
        body: dict[str, Any] = {
            "id": f"resp_{self._identity}",
            "object": "response",
            "created_at": self._created,
            "model": self._model,
            "status": status,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "output": [self._item(_WORD * answer.output_tokens, "completed")] if done else [],
            "usage": None,
        }
        if done:
            body["usage"] = {
                "input_tokens": answer.prompt_tokens,
                "output_tokens": answer.output_tokens,
                "total_tokens": answer.prompt_tokens + answer.output_tokens,
            }
        return body

    def _item(self, text: str, status: str) -> dict[str, Any]:
        content = [self._text(text)] if text else []
        return {
            "id": f"msg_{self._identity}",
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    def _place(self) -> dict[str, Any]:
        return {"item_id": f"msg_{self._identity}", "output_index": 0, "content_index": 0}

    @staticmethod
    def _text(text: str) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": []}


def _data(body: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def _event(name: str, body: dict[str, Any]) -> bytes:
    """Return an event with its name, which its data repeats."""
    return f"event: {name}\n".encode() + _data({"type": name, **body})
