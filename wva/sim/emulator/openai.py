"""Bodies of requests: the part of vLLM's API that load generators and gateways use.

They are read as vLLM reads them: unknown fields are ignored, and a number may come as text or as 3.0.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Self, TypeVar

import msgspec
from pydantic import BaseModel, Field, ValidationError, model_validator

CHARACTERS_PER_TOKEN: Final = 4
"""The emulator has no tokenizer. Four characters count as a token, which is about right for English text."""
_ROLE_TOKENS: Final = 4
_MOST_ANSWERS: Final = 128
"""Answers and prompts of one request: a bound of the emulator, which keeps one request from filling the engine."""

BodyT = TypeVar("BodyT", bound=BaseModel)
Limit = Annotated[int, Field(ge=1)]


class UnservedRequestError(Exception):
    """A refused request. ``status`` is the HTTP code, and the message is for the user."""

    def __init__(self, status: int, message: str, *, code: str = "BadRequestError", field: str | None = None) -> None:
        """Keep the error for the answer; ``code`` is OpenAI's ``type`` of the error, ``field`` the wrong parameter."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.field = field

    def body(self) -> bytes:
        """Return the body of the answer, in the form that OpenAI's clients read."""
        error = {"message": str(self), "type": self.code, "param": self.field, "code": self.status}
        return msgspec.json.encode({"error": error})


class StreamOptions(BaseModel):
    """``stream_options``."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class Message(BaseModel):
    """One message of a conversation; if its content has several parts, their text counts."""

    role: str = "user"
    content: str | list[dict[str, Any]] | None = None

    @property
    def tokens(self) -> int:
        """The tokens of its text and of its role."""
        content = self.content
        if isinstance(content, str):
            return tokens(len(content)) + _ROLE_TOKENS
        return tokens(sum(len(str(part.get("text", ""))) for part in content or ())) + _ROLE_TOKENS


class GenerationRequest(BaseModel):
    """The fields that all requests for text have in common. Lengths are tokens."""

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False
    n: Annotated[int, Field(ge=1, le=_MOST_ANSWERS)] = 1
    temperature: Annotated[float, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _streams_if_it_says_how(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("Stream options can only be defined when `stream=True`.")
        return self

    @property
    def options(self) -> StreamOptions:
        """How to stream."""
        return self.stream_options or StreamOptions()

    @property
    def prompts(self) -> list[int]:
        """The length of each prompt."""
        raise NotImplementedError

    @property
    def limit(self) -> int | None:
        """The longest answer; None if the model decides."""
        raise NotImplementedError


class Completion(GenerationRequest):
    """The body of ``/v1/completions``."""

    prompt: str | list[int] | Annotated[list[str | list[int]], Field(max_length=_MOST_ANSWERS)]
    max_tokens: Limit | None = 16

    @property
    def prompts(self) -> list[int]:
        """The length of each prompt, text or token ids."""
        prompt = self.prompt
        several = isinstance(prompt, list) and prompt and not isinstance(prompt[0], int)
        return [_length(entry) for entry in (prompt if several else [prompt])]

    @property
    def limit(self) -> int | None:
        """The longest answer."""
        return self.max_tokens


class ChatCompletion(GenerationRequest):
    """The body of ``/v1/chat/completions``."""

    messages: list[Message]
    max_tokens: Limit | None = None
    max_completion_tokens: Limit | None = None

    @property
    def prompts(self) -> list[int]:
        """The length of the conversation; each message has some tokens for its role."""
        return [sum(message.tokens for message in self.messages) or 1]

    @property
    def limit(self) -> int | None:
        """The longest answer; the field with the newer name comes first."""
        return self.max_completion_tokens or self.max_tokens


class AnthropicMessages(GenerationRequest):
    """The body of ``/v1/messages``, Anthropic's API."""

    messages: list[Message]
    max_tokens: Limit
    system: str | list[dict[str, Any]] | None = None

    @property
    def prompts(self) -> list[int]:
        """The length of the conversation, the system's message included."""
        system = [] if self.system is None else [Message(role="system", content=self.system)]
        return [sum(message.tokens for message in (*system, *self.messages)) or 1]

    @property
    def limit(self) -> int | None:
        """The longest answer."""
        return self.max_tokens


class ResponsesInput(GenerationRequest):
    """The body of ``/v1/responses``."""

    input: str | list[Message]
    max_output_tokens: Limit | None = None

    @property
    def prompts(self) -> list[int]:
        """The length of the conversation; a text is one message."""
        messages = [Message(content=self.input)] if isinstance(self.input, str) else self.input
        return [sum(message.tokens for message in messages) or 1]

    @property
    def limit(self) -> int | None:
        """The longest answer."""
        return self.max_output_tokens


class TokenizedText(BaseModel):
    """The body of ``/tokenize``: a text or a conversation."""

    prompt: str | None = None
    messages: list[Message] | None = None

    @model_validator(mode="after")
    def _has_text(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("expected either prompt or messages")
        return self

    @property
    def count(self) -> int:
        """The number of its tokens."""
        if self.prompt is not None:
            return tokens(len(self.prompt))
        return sum(message.tokens for message in self.messages or ()) or 1


def tokens(characters: int) -> int:
    """Return the tokens of a text of this length, at least one."""
    return max(1, -(-characters // CHARACTERS_PER_TOKEN))


def read(kind: type[BodyT], data: bytes) -> BodyT:
    """Decode a body. Raises UnservedRequestError, which names the field that is wrong."""
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(map(str, first["loc"])) or None
        received = "" if first["type"] == "missing" else f", got {str(first['input'])[:100]!r}"
        raise UnservedRequestError(400, f"{field or 'the body'}: {first['msg']}{received}", field=field) from error


def _length(prompt: Any) -> int:
    return tokens(len(prompt)) if isinstance(prompt, str) else max(1, len(prompt))
