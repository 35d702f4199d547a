"""Expectations about reviews: which user a token belongs to, for which audiences, and what a user may do."""

# An expectation states what holds; it is no command.
# ruff: noqa: D401

from __future__ import annotations

import base64
import json
from typing import Any

from tests.contract.kubernetes.client import ClientAnswer, ContractClient
from tests.contract.kubernetes.documents import core
from tests.contract.kubernetes.registry import expectation

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
METRICS = {"nonResourceAttributes": {"path": "/metrics-of-nobody", "verb": "get"}}


async def account(client: ContractClient, namespace: str, name: str = "reader") -> dict[str, Any]:
    """Create a ServiceAccount."""
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    return dict((await client.post(core(namespace, "serviceaccounts"), body)).ok())


async def issued(client: ContractClient, namespace: str, **spec: Any) -> ClientAnswer:
    """Ask for a token of the ServiceAccount."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return await client.post(f"{core(namespace, 'serviceaccounts')}/reader/token", body)


async def whose(client: ContractClient, token: str, **spec: Any) -> dict[str, Any]:
    """Return the status of a review of a token."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token, **spec}}
    answer = await client.post(TOKENS, body)
    assert answer.status == 201, answer
    return dict(answer.body["status"])


async def access(client: ContractClient, **spec: Any) -> ClientAnswer:
    """Ask what a user may do."""
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    return await client.post(ACCESS, body)


@expectation
async def a_token_of_a_service_account_is_its(client: ContractClient, namespace: str) -> None:
    """A review of a token has user, uid, groups, extra fields, and the API server's own audiences."""
    uid = (await account(client, namespace))["metadata"]["uid"]
    status = (await issued(client, namespace)).ok()["status"]
    assert status["expirationTimestamp"]
    review = await whose(client, status["token"])
    assert review["authenticated"] is True
    assert review["audiences"]
    user = review["user"]
    assert (user["username"], user["uid"]) == (f"system:serviceaccount:{namespace}:reader", uid)
    groups = {"system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"}
    assert set(user["groups"]) == groups
    assert all(isinstance(values, list) for values in user["extra"].values())


@expectation
async def a_token_is_good_for_its_audiences_only(client: ContractClient, namespace: str) -> None:
    """A token names its audiences, and a review without them refuses it; one with audiences returns those that fit."""
    await account(client, namespace)
    token = (await issued(client, namespace, audiences=["one", "two"])).ok()["status"]["token"]
    claims = token.split(".")[1]
    assert json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["aud"] == ["one", "two"]
    refused = await whose(client, token)
    assert not refused.get("authenticated")
    assert refused["error"]
    review = await whose(client, token, audiences=["two", "three"])
    assert (review["authenticated"], review["audiences"]) == (True, ["two"])
    assert not (await whose(client, token, audiences=["three"])).get("authenticated")


@expectation
async def tokens_are_issued_for_ten_minutes_at_least(client: ContractClient, namespace: str) -> None:
    """The server refuses a token of one minute, and one for a ServiceAccount that does not exist."""
    (await issued(client, namespace)).refused(404, "NotFound")
    await account(client, namespace)
    answer = await issued(client, namespace, expirationSeconds=60)
    answer.refused(422, "Invalid")
    assert ("spec.expirationSeconds", "FieldValueInvalid") in answer.causes()


@expectation
async def a_review_is_about_something(client: ContractClient, namespace: str) -> None:
    """A review needs a token, or a user and exactly one kind of access."""
    assert namespace
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": ""}}
    (await client.post(TOKENS, body)).refused(400, "BadRequest")
    answer = await access(client, **METRICS)
    answer.refused(422, "Invalid")
    assert ("spec.user", "FieldValueInvalid") in answer.causes()
    answer = await access(client, user="somebody")
    answer.refused(422, "Invalid")
    assert ("spec.resourceAttributes", "FieldValueInvalid") in answer.causes()
    answer = await access(client, user="somebody", **METRICS, resourceAttributes={"verb": "get", "resource": "pods"})
    answer.refused(422, "Invalid")
    assert ("spec.nonResourceAttributes", "FieldValueInvalid") in answer.causes()


@expectation
async def rights_are_those_of_user_and_groups(client: ContractClient, namespace: str) -> None:
    """A user without rights may not read the page; a user in the group ``system:masters`` may."""
    stranger = {"user": f"stranger-of-{namespace}", "uid": "u1", "extra": {"scopes": ["a", "b"]}}
    answer = await access(client, **stranger, groups=["system:authenticated"], **METRICS)
    assert answer.status == 201
    assert answer.body["status"]["allowed"] is False
    assert answer.body["spec"]["extra"] == {"scopes": ["a", "b"]}
    answer = await access(client, **stranger, groups=["system:masters"], **METRICS)
    assert answer.body["status"]["allowed"] is True
