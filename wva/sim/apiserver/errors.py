"""Refusals of the API server: one exception that knows its HTTP status and its ``Status`` body.

The constructors below are the refusals of Kubernetes by name, with the same reason, message and details as the real
server, because clients decide by them.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from wva.sim.apiserver.kinds import KindSpec, ValidationProblem
from wva.sim.apiserver.objects import JsonObject, Object


class ServedError(Exception):
    """A request that is refused: HTTP ``code``, machine-readable ``reason``, ``message`` and ``details``."""

    def __init__(self, code: int, reason: str, message: str, *, details: Object | None = None) -> None:
        """Keep the content of the ``Status`` body."""
        super().__init__(message)
        self.code = int(code)
        self.reason = reason
        self.message = message
        self.details = None if details is None else dict(details)

    def status(self) -> JsonObject:
        """Return the ``Status`` object of the answer."""
        body: JsonObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }
        return {key: value for key, value in body.items() if value is not None and value != ""}


def _of(spec: KindSpec, name: str) -> JsonObject:
    details = {"name": name, "group": spec.group, "kind": spec.plural}
    return {key: value for key, value in details.items() if value}


def not_found(spec: KindSpec, name: str) -> ServedError:
    """Refuse: there is no such object."""
    return ServedError(HTTPStatus.NOT_FOUND, "NotFound", f'{spec.name} "{name}" not found', details=_of(spec, name))


def nothing_served() -> ServedError:
    """Refuse: the path leads to no resource."""
    text = "the server could not find the requested resource"
    return ServedError(HTTPStatus.NOT_FOUND, "NotFound", text, details={})


def already_exists(spec: KindSpec, name: str) -> ServedError:
    """Refuse: the name is taken."""
    text = f'{spec.name} "{name}" already exists'
    return ServedError(HTTPStatus.CONFLICT, "AlreadyExists", text, details=_of(spec, name))


def conflict(spec: KindSpec, name: str, why: str) -> ServedError:
    """Refuse: the object differs from the writer's expectation."""
    text = f'Operation cannot be fulfilled on {spec.name} "{name}": {why}'
    return ServedError(HTTPStatus.CONFLICT, "Conflict", text, details=_of(spec, name))


def modified(spec: KindSpec, name: str) -> ServedError:
    """Refuse: the writer's resourceVersion is not the current one."""
    return conflict(
        spec, name, "the object has been modified; please apply your changes to the latest version and try again"
    )


def bad_request(message: str) -> ServedError:
    """Refuse: the request makes no sense."""
    return ServedError(HTTPStatus.BAD_REQUEST, "BadRequest", message)


def forbidden(spec: KindSpec, name: str, why: str, *, causes: Iterable[Object] = ()) -> ServedError:
    """Refuse: not allowed."""
    subject = f'{spec.name} "{name}"' if name else spec.name
    details = _of(spec, name)
    cause_list = [dict(cause) for cause in causes]
    if cause_list:
        details["causes"] = cause_list
    return ServedError(HTTPStatus.FORBIDDEN, "Forbidden", f"{subject} is forbidden: {why}", details=details)


def invalid(spec: KindSpec, name: str, problems: Iterable[ValidationProblem]) -> ServedError:
    """Refuse: the object breaks its schema or a rule of its kind."""
    problem_list = list(problems)
    sentences = [f"{problem.field}: {problem.message}" for problem in problem_list]
    text = sentences[0] if len(sentences) == 1 else "[" + ", ".join(sentences) + "]"
    details = {"name": name, "group": spec.group, "kind": spec.kind}
    details = {key: value for key, value in details.items() if value}
    causes = [
        {"reason": problem.reason, "message": problem.message, "field": problem.field} for problem in problem_list
    ]
    return ServedError(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "Invalid",
        f'{spec.qualified_kind} "{name}" is invalid: {text}',
        details={**details, "causes": causes},
    )


def version_required(spec: KindSpec, name: str) -> ServedError:
    """Refuse: an update of this kind must name the current version of the object."""
    field, message = "metadata.resourceVersion", "Invalid value: 0: must be specified for an update"
    causes = [{"reason": "FieldValueInvalid", "message": message, "field": field}]
    return ServedError(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "Invalid",
        f'{spec.name} "{name}" is invalid: {field}: {message}',
        details={**_of(spec, name), "causes": causes},
    )


def unsupported_option(kind: str, option: str, value: str, supported: str) -> ServedError:
    """Refuse: an option of the query that is not served, for example a ``dryRun`` other than ``All``."""
    message = f'Unsupported value: ["{value}"]: supported values: "{supported}"'
    causes = [{"reason": "FieldValueNotSupported", "message": message, "field": option}]
    return ServedError(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "Invalid",
        f'{kind}.meta.k8s.io "" is invalid: {option}: {message}',
        details={"group": "meta.k8s.io", "kind": kind, "causes": causes},
    )


def forbidden_option(kind: str, option: str, why: str) -> ServedError:
    """Refuse: an option of the query that is not allowed together with, or without, another one."""
    causes = [{"reason": "FieldValueForbidden", "message": f"Forbidden: {why}", "field": option}]
    return ServedError(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "Invalid",
        f'{kind}.meta.k8s.io "" is invalid: {option}: Forbidden: {why}',
        details={"group": "meta.k8s.io", "kind": kind, "causes": causes},
    )


def internal_error(message: str) -> ServedError:
    """Refuse: the server cannot answer, because of the content of the object."""
    causes = [{"message": message}]
    text = f"Internal error occurred: {message}"
    return ServedError(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", text, details={"causes": causes})


def expired(message: str) -> ServedError:
    """Refuse: the history that the request needs is gone (410)."""
    return ServedError(HTTPStatus.GONE, "Expired", message)


def too_large_version(asked: int, current: int) -> ServedError:
    """Refuse: a list at a resourceVersion that lies in the future."""
    return ServedError(
        HTTPStatus.GATEWAY_TIMEOUT,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
    )


def method_not_allowed() -> ServedError:
    """Refuse: this verb is not served here."""
    text = "the server does not allow this method on the requested resource"
    return ServedError(HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowed", text, details={})


def unsupported_media_type(accepted: Iterable[str]) -> ServedError:
    """Refuse: the body is of a type that the server does not read."""
    text = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    return ServedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", text)


def unauthorized() -> ServedError:
    """Refuse: no valid token."""
    return ServedError(HTTPStatus.UNAUTHORIZED, "Unauthorized", "Unauthorized")
