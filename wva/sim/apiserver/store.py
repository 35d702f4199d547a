"""The API server without HTTP: verbs on objects, for the simulation and for the HTTP face alike.

Objects go in and come out as plain JSON; kinds are named by their resource name (``deployments.apps``), a ``KindSpec``
or a ``wva.api`` resource. Every refusal is a ``ServedError`` with the status code that the real server gives.
Everything is synchronous: one call is one transaction, and subscribers have seen its changes when it returns. A write
that changes nothing is no write: it takes no version and causes no event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus

from wva.api.meta import Key, format_time
from wva.sim.apiserver import lifecycle, scale
from wva.sim.apiserver.apply import Writer, apply, owned, record_update
from wva.sim.apiserver.builtin import BUILT_IN, CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from wva.sim.apiserver.cascade import Cascade
from wva.sim.apiserver.definitions import Definitions
from wva.sim.apiserver.errors import (
    ServedError,
    already_exists,
    bad_request,
    forbidden,
    invalid,
    not_found,
    unsupported_media_type,
    version_required,
)
from wva.sim.apiserver.identities import Identities
from wva.sim.apiserver.journal import Journal
from wva.sim.apiserver.kinds import Kind, KindSpec, ValidationProblem
from wva.sim.apiserver.lifecycle import STATUS
from wva.sim.apiserver.objects import Json, JsonObject, Object, clone, metadata_of
from wva.sim.apiserver.options import DeleteOptions, Patch, StoreOptions, WriteOptions
from wva.sim.apiserver.patches import PatchFailedError, PatchType, json_patch, merge_patch, strategic_merge_patch
from wva.sim.apiserver.reader import ObjectReader
from wva.sim.apiserver.shape import Shape

SCALE = "scale"
_REPLICAS = ("f:spec", "f:replicas")
_WRITE = WriteOptions()
_DELETE = DeleteOptions()


@dataclass(frozen=True, slots=True)
class _Write:
    """How an existing object is written: its options, through which subresource, and whether by server-side apply."""

    options: WriteOptions
    subresource: str = ""
    applied: bool = False


class ObjectStore(ObjectReader):
    """Objects of all kinds, with the behaviour of the Kubernetes API."""

    def __init__(
        self, kinds: Iterable[KindSpec] = (), *, now: Callable[[], float], options: StoreOptions | None = None
    ) -> None:
        """Serve the built-in kinds and ``kinds``. ``now`` returns seconds since the epoch and stamps the objects."""
        self.options = options or StoreOptions()
        super().__init__(Journal((*BUILT_IN, *kinds), history_limit=self.options.history_limit))
        self._now = now
        self._identities = Identities(self.options.seed)
        self._cascade = Cascade(self.journal)
        self._definitions = Definitions(self.journal, self)
        self._definitions.follow()
        for name in self.options.namespaces:
            self.create(NAMESPACES, {"metadata": {"name": name}})

    def create(self, kind: Kind, value: Object, options: WriteOptions = _WRITE) -> Object:
        """Create an object in the namespace its metadata names; return it as stored.

        Raises ApiError 404 (namespace), 403 (namespace going away), 409 (exists), 422 (invalid).
        """
        spec = self.spec(kind)
        if metadata_of(value).get("resourceVersion"):
            text = "resourceVersion should not be set on objects to be created"
            raise ServedError(HTTPStatus.INTERNAL_SERVER_ERROR, "", text)
        draft: JsonObject = {"apiVersion": spec.api_version, "kind": spec.kind}
        draft["metadata"] = lifecycle.fresh_metadata(value)
        draft |= {name: part for name, part in value.items() if name not in draft}
        draft = clone(draft)
        lifecycle.initial(spec, draft)
        key = self._place(spec, metadata_of(draft))
        options.on_unknown_fields(lifecycle.conform(spec, draft))
        lifecycle.check_valid(spec, draft, None)
        if self.find(spec, key) is not None:
            raise already_exists(spec, key.name)
        metadata_of(draft).update(uid=self._identities.uid(), creationTimestamp=self._time())
        if spec.generation:
            metadata_of(draft)["generation"] = 1
        if not options.dry_run:
            self.journal.put(spec, key, draft)
        return draft

    def update(self, kind: Kind, value: Object, *, subresource: str = "", options: WriteOptions = _WRITE) -> Object:
        """Replace an object, or its status or scale; return it as stored (for scale: the Scale).

        Raises ApiError 404, 409 (outdated resourceVersion), 422 (invalid).
        """
        spec = self.spec(kind)
        metadata = metadata_of(value)
        key = Key(metadata.get("namespace", "") if spec.namespaced else "", metadata.get("name", ""))
        if spec.create_on_update and self.find(spec, key) is None:
            return self.create(spec, value, options)
        old = self.get(spec, key)
        if subresource == SCALE:
            return self._rescale(spec, old, value, options)
        if not spec.unconditional_update and not metadata.get("resourceVersion"):
            raise version_required(spec, key.name)
        return self._replace(spec, old, value, _Write(options, subresource))

    def patch(self, kind: Kind, key: Key, patch: Patch) -> Object:
        """Patch an object, or its status or scale; return it as stored (for scale: the Scale).

        Raises ApiError 404, 409 (conflict), 415 (format not served for the kind), 422 (invalid).
        """
        spec = self.spec(kind)
        if patch.type is PatchType.APPLY:
            return self._apply(spec, key, patch)
        old = self.get(spec, key)
        if patch.subresource == SCALE:
            current = scale.scale_of(spec, old)
            return self._rescale(spec, old, _patched(spec, current, patch), patch.options)
        new = _patched(spec, old, patch)
        lifecycle.check_type(spec, new)
        lifecycle.check_identity(metadata_of(new), metadata_of(old))
        if metadata_of(new).get("uid") != metadata_of(old)["uid"]:
            text = f'Invalid value: "{metadata_of(new).get("uid", "")}": field is immutable'
            raise invalid(spec, key.name, [ValidationProblem("metadata.uid", "FieldValueInvalid", text)])
        return self._replace(spec, old, new, _Write(patch.options, patch.subresource))

    def patch_status(self, kind: Kind, key: Key, status: Object) -> Object:
        """Merge ``status`` into the status of an object through its status subresource."""
        return self.patch(kind, key, Patch(body={"status": status}, subresource=STATUS))

    def patch_scale(self, kind: Kind, key: Key, replicas: int) -> Object:
        """Set the wanted number of replicas through the scale subresource; return the Scale."""
        return self.patch(kind, key, Patch(body={"spec": {"replicas": replicas}}, subresource=SCALE))

    def get_scale(self, kind: Kind, key: Key) -> Object:
        """Return the Scale of an object. Raises ApiError 404."""
        return scale.scale_of(self.spec(kind), self.get(kind, key))

    def delete(self, kind: Kind, key: Key, options: DeleteOptions = _DELETE) -> Object:
        """Delete an object and its dependents; return its last state, marked as deleted if something holds the object.

        Raises ApiError 404, 409 (precondition).
        """
        spec = self.spec(kind)
        value = self.get(spec, key)
        precondition = {"uid": options.uid, "resourceVersion": options.resource_version}
        lifecycle.check_precondition(spec, precondition, metadata_of(value))
        if options.dry_run:
            return value
        uid = str(metadata_of(value)["uid"])
        if options.propagation == "Orphan":
            self._cascade.orphan(uid, self)
        elif options.propagation == "Foreground":
            for dependent, dependent_key in self._cascade.dependents(uid):
                self.delete(dependent, dependent_key, DeleteOptions(propagation="Foreground"))
        if spec.name == NAMESPACES.name:
            return self._delete_namespace(key)
        if spec.name == CUSTOM_RESOURCE_DEFINITIONS.name:
            self._definitions.delete_objects(value)
        value = self.get(spec, key)
        if metadata_of(value).get("finalizers") or options.grace_period_seconds > 0:
            return self._mark_deleted(spec, key, grace_seconds=options.grace_period_seconds)
        return self._remove(spec, key, dict(value))

    def disown(self, kind: Kind, key: Key, uid: str) -> None:
        """Drop the owner reference to ``uid`` from an object."""
        owners = [owner for owner in metadata_of(self.get(kind, key))["ownerReferences"] if owner.get("uid") != uid]
        self.patch(kind, key, Patch(body={"metadata": {"ownerReferences": owners or None}}))

    # --- inside ----------------------------------------------------------------------------------------------------

    def _time(self) -> str:
        return format_time(self._now())

    def _place(self, spec: KindSpec, metadata: JsonObject) -> Key:
        """Return the key of a new object; generate its name on request. Raises ApiError about its namespace."""
        if not spec.namespaced:
            metadata.pop("namespace", None)
        elif not metadata.get("namespace"):
            raise bad_request(f"an object of {spec.name} needs a namespace")
        key = Key(metadata.get("namespace", ""), metadata.get("name", ""))
        if not key.name and metadata.get("generateName"):
            key = Key(key.namespace, metadata["generateName"] + self._identities.suffix())
            metadata["name"] = key.name
        if spec.namespaced and self.options.require_namespaces:
            namespace = self.find(NAMESPACES, Key("", key.namespace))
            if namespace is None:
                raise not_found(NAMESPACES, key.namespace)
            if "deletionTimestamp" in metadata_of(namespace):
                why = f"unable to create new content in namespace {key.namespace} because it is being terminated"
                cause = {"reason": "NamespaceTerminating", "message": f"namespace {key.namespace} is being terminated"}
                raise forbidden(spec, key.name, why, causes=[{**cause, "field": "metadata.namespace"}])
        return key

    def _replace(self, spec: KindSpec, old: Object, new: Object, write: _Write) -> Object:
        """Store the part of ``new`` that this endpoint may write in place of ``old``, unless nothing changes."""
        options = write.options
        lifecycle.check_precondition(spec, metadata_of(new), metadata_of(old))
        result: JsonObject = clone(lifecycle.updated(spec, new, old, subresource=write.subresource))
        options.on_unknown_fields(lifecycle.conform(spec, result))
        lifecycle.check_valid(spec, result, old, subresource=write.subresource)
        metadata = metadata_of(result)
        if write.applied:
            metadata["managedFields"] = metadata_of(new)["managedFields"]
        elif write.subresource != SCALE or owned(old, _REPLICAS):
            # The real server records no manager for a scale that nobody owns yet, and no time for a custom resource.
            time = self._time() if spec.built_in or write.subresource != SCALE else ""
            record_update(spec, old, result, Writer(options.manager, time, write.subresource))
        if result == old or options.dry_run:
            return result
        key = Key(metadata.get("namespace", ""), metadata["name"])
        if "deletionTimestamp" in metadata and not metadata.get("finalizers") and metadata_of(old).get("finalizers"):
            return self._remove(spec, key, result)
        self.journal.put(spec, key, result)
        return result

    def _rescale(self, spec: KindSpec, old: Object, new_scale: Object, options: WriteOptions) -> Object:
        lifecycle.check_identity(metadata_of(new_scale), metadata_of(old))
        new = scale.rescaled(spec, old, new_scale)
        return scale.scale_of(spec, self._replace(spec, old, new, _Write(options, SCALE)))

    def _apply(self, spec: KindSpec, key: Key, patch: Patch) -> Object:
        """Apply a configuration on the server side; create the object when it does not exist."""
        config = dict(patch.body)
        if not (config.get("apiVersion") and config.get("kind")):
            raise bad_request(f"invalid object type: {config.get('apiVersion', '')}, Kind={config.get('kind', '')}")
        if patch.subresource == SCALE:
            config = scale.applied(spec, config)
        lifecycle.check_type(spec, config)
        options = patch.options
        identity = {"name": key.name, **({"namespace": key.namespace} if spec.namespaced else {})}
        lifecycle.check_identity(metadata_of(config), identity)
        if metadata_of(config).get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        config["metadata"] = {**metadata_of(config), **identity}
        if patch.subresource == STATUS:
            config = {name: value for name, value in config.items() if name in {"metadata", "status"}}
        elif spec.status:
            config.pop("status", None)
        writer = Writer(options.manager, self._time(), patch.subresource, options.force)
        old = self.find(spec, key)
        if old is None:
            if patch.subresource:
                raise not_found(spec, key.name)
            return self.create(spec, apply(spec, None, config, writer), options)
        new = apply(spec, old, config, writer)
        if patch.subresource == SCALE and not spec.built_in:
            raise scale.not_converted(key)
        stored = self._replace(spec, old, new, _Write(options, patch.subresource, applied=True))
        return scale.scale_of(spec, stored) if patch.subresource == SCALE else stored

    def _mark_deleted(self, spec: KindSpec, key: Key, *, grace_seconds: int = 0) -> Object:
        value = self.get(spec, key)
        metadata = dict(metadata_of(value))
        if "deletionTimestamp" in metadata:
            return value
        metadata["deletionTimestamp"] = format_time(self._now() + grace_seconds)
        metadata["deletionGracePeriodSeconds"] = grace_seconds
        if metadata.get("generation"):
            metadata["generation"] += 1
        marked = {**value, "metadata": metadata}
        self.journal.put(spec, key, marked)
        return marked

    def _remove(self, spec: KindSpec, key: Key, last: JsonObject) -> Object:
        change = self.journal.remove(spec, key, last)
        self._cascade.after_removal(change, self)
        namespace = self._cascade.waiting_namespace(change)
        if namespace is not None:
            self._remove(NAMESPACES, namespace, dict(self.get(NAMESPACES, namespace)))
        return change.object

    def _delete_namespace(self, key: Key) -> Object:
        marked = dict(self._mark_deleted(NAMESPACES, key))
        if marked["status"].get("phase") != "Terminating":
            marked["metadata"] = dict(metadata_of(marked))
            marked["status"] = {**marked["status"], "phase": "Terminating"}
            self.journal.put(NAMESPACES, key, marked)
        if self._cascade.empty_namespace(key.name, self) and self.find(NAMESPACES, key) is not None:
            self._remove(NAMESPACES, key, marked)
        return marked


def _patched(spec: KindSpec, old: Object, patch: Patch) -> JsonObject:
    new: Json
    if not isinstance(patch.body, list if patch.type is PatchType.JSON else dict):
        raise bad_request("error decoding patch: a JSON patch is a list, the others are objects")
    if patch.type is PatchType.JSON:
        try:
            new = json_patch(dict(old), patch.body)
        except PatchFailedError as error:
            text = "the server rejected our request due to an error in our request"
            raise ServedError(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", text, details={}) from error
    elif patch.type is PatchType.STRATEGIC:
        if not spec.built_in:
            raise unsupported_media_type((PatchType.JSON, PatchType.MERGE, PatchType.APPLY))
        new = strategic_merge_patch(dict(old), patch.body, Shape.of(spec))
    else:
        new = merge_patch(dict(old), patch.body)
    if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
        raise bad_request("the patch does not lead to an object")
    return new
