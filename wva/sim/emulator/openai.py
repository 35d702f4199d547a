"""Bodies of requests and answers: the part of vLLM's OpenAI API that load generators and gateways use.

Unknown fields are ignored, as vLLM does. What an emulator cannot do is refused in words.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

CHARACTERS_PER_TOKEN: Final = 4
"""The emulator has no tokenizer. Four characters count as a token, which is about right for English text."""


class UnservedRequestError(Exception):
    """A refused request. ``status`` is the HTTP code, and the message is for the user."""

    def __init__(self, status: int, message: str, *, code: str) -> None:
        """Keep the error for the answer; ``code`` is OpenAI's ``type`` of the error."""
        super().__init__(message)
        self.status = status
        self.code = code

    def body(self) -> bytes:
        """Return the body of the answer, in the form that OpenAI's clients read."""
        error = {"message": str(self), "type": self.code, "param": None, "code": self.status}
        return msgspec.json.encode({"error": error})


class StreamOptions(msgspec.Struct):
    """``stream_options``."""

    include_usage: bool = False


class Message(msgspec.Struct):
    """One message of a conversation; the content of several parts counts with the text in it."""

    role: str = "user"
    content: str | list[dict[str, Any]] | None = None

    @property
    def characters(self) -> int:
        """The length of its text."""
        if isinstance(self.content, str):
            return len(self.content)
        return sum(len(str(part.get("text", ""))) for part in self.content or ())


class Completion(msgspec.Struct):
    """The body of ``/v1/completions``."""

    model: str = ""
    prompt: str | list[Any] = ""
    max_tokens: int | None = 16
    stream: bool = False
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False
    n: int = 1

    @property
    def prompt_tokens(self) -> int:
        """The length of the prompt, text or token ids, in tokens. Raises RefusedError for several in one request."""
        prompt = self.prompt
        if isinstance(prompt, list) and any(not isinstance(token, int) for token in prompt):
            if len(prompt) != 1 or not isinstance(prompt[0], str | list):
                raise UnservedRequestError(400, "expected one prompt in a request", code="BadRequestError")
            prompt = prompt[0]
        return tokens(len(prompt)) if isinstance(prompt, str) else max(1, len(prompt))


class ChatCompletion(msgspec.Struct):
    """The body of ``/v1/chat/completions``."""

    model: str = ""
    messages: list[Message] = []
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False
    n: int = 1

    @property
    def prompt_tokens(self) -> int:
        """The length of the conversation in tokens; each message costs some for its role."""
        return sum(tokens(message.characters) + _ROLE_TOKENS for message in self.messages) or 1


_ROLE_TOKENS: Final = 4
_WORD: Final = "word "
_completions = msgspec.json.Decoder(Completion)
_chats = msgspec.json.Decoder(ChatCompletion)


def tokens(characters: int) -> int:
    """Return the tokens of a text of this length, at least one."""
    return max(1, -(-characters // CHARACTERS_PER_TOKEN))


def read(data: bytes, *, chat: bool) -> Completion | ChatCompletion:
    """Decode a body. Raises RefusedError."""
    try:
        body = (_chats if chat else _completions).decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnservedRequestError(400, f"the body does not fit: {error}", code="BadRequestError") from error
    if body.n != 1:
        raise UnservedRequestError(400, f"n={body.n}: expected 1", code="BadRequestError")
    if wanted_tokens(body) is not None and (wanted_tokens(body) or 0) < 1:
        raise UnservedRequestError(
            400, f"max_tokens={wanted_tokens(body)}: expected at least 1", code="BadRequestError"
        )
    return body


def wanted_tokens(body: Completion | ChatCompletion) -> int | None:
    """Return the longest requested answer; None if the model decides."""
    if isinstance(body, ChatCompletion) and body.max_completion_tokens is not None:
        return body.max_completion_tokens
    return body.max_tokens


def words(count: int) -> str:
    """Return an answer of ``count`` tokens."""
    return _WORD * count


class ResponseBodies:
    """Makes the bodies of the answers to one request."""

    def __init__(self, body: Completion | ChatCompletion, *, identity: str, created: int, prompt_tokens: int) -> None:
        """Take the common fields of all answers to the request; ``created`` is in seconds since the epoch."""
        self._chat = isinstance(body, ChatCompletion)
        self._usage_wanted = body.stream_options is not None and body.stream_options.include_usage
        self._prompt_tokens = prompt_tokens
        self._head = {
            "id": f"{'chatcmpl' if self._chat else 'cmpl'}-{identity}",
            "created": created,
            "model": body.model,
        }

    def whole(self, count: int, *, reason: str) -> bytes:
        """Return the answer in one piece."""
        choice: dict[str, Any] = {"index": 0, "finish_reason": reason}
        if self._chat:
            choice["message"] = {"role": "assistant", "content": words(count)}
        else:
            choice["text"] = words(count)
        kind = "chat.completion" if self._chat else "text_completion"
        return msgspec.json.encode({**self._head, "object": kind, "choices": [choice], "usage": self._usage(count)})

    def piece(self, count: int, *, reason: str | None = None, first: bool = False) -> bytes:
        """Return one event of a stream with ``count`` tokens. The last one has the finish reason."""
        choice: dict[str, Any] = {"index": 0, "finish_reason": reason}
        if self._chat:
            choice["delta"] = {**({"role": "assistant"} if first else {}), "content": words(count)}
        else:
            choice["text"] = words(count)
        return self._event({**self._stream_head(), "choices": [choice]})

    def end(self, count: int) -> bytes:
        """Return the end of a stream: the usage if it is requested, and the end mark."""
        usage = {**self._stream_head(), "choices": [], "usage": self._usage(count)}
        return (self._event(usage) if self._usage_wanted else b"") + b"data: [DONE]\n\n"

    def _stream_head(self) -> dict[str, Any]:
        return {**self._head, "object": "chat.completion.chunk" if self._chat else "text_completion"}

    def _usage(self, count: int) -> dict[str, int]:
        prompt = self._prompt_tokens
        return {"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count}

    @staticmethod
    def _event(body: dict[str, Any]) -> bytes:
        return b"data: " + msgspec.json.encode(body) + b"\n\n"
