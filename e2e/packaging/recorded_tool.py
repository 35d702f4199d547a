"""Stands in for kubectl, helm, kind, a container engine and openssl: records each call, and keeps a small world.

It is called under the name of the tool. The folder of ``$RECORDED`` holds ``world.json`` (all objects)
and ``calls.jsonl`` (all calls). Like the real tools it refuses to create an existing object. So a script that passes
twice has looked first. Standard library only: it starts some forty times for one installation.
"""

import binascii
import fcntl
import json
import os
import re
import sys
from pathlib import Path

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nof the script\n-----END CERTIFICATE-----\n"
CLUSTER_SCOPED = {"namespace", "nodes", "node", "apiservice", "customresourcedefinition"}


class ToolFailure(Exception):  # noqa: N818 - what the tool would write
    """The tool ends with status 1 and this text."""


def flag(argv, *names):
    """Return the value of the first of these flags, and remove it; None when there is none."""
    for name in names:
        if name in argv:
            at = argv.index(name)
            value = argv[at + 1]
            del argv[at : at + 2]
            return value
    return None


def switch(argv, name):
    """Return whether a flag without a value is there, and remove it."""
    found = name in argv
    if found:
        argv.remove(name)
    return found


def jsonpath(thing, text):
    """Evaluate the little of JSONPath that the scripts use; ``range`` goes over the items of a list."""
    looped = re.search(r"\{range \.items\[\*\]\}(.*)\{end\}", text)
    if looped:
        return "".join(jsonpath(item, looped[1]) for item in thing["items"])
    return re.sub(r"\{(.*?)\}", lambda match: value(thing, match[1]), text)


def value(thing, path):
    """Return one expression's value: a literal, or what is at a path, all of it when there are several."""
    if path.startswith('"'):
        return json.loads(path)
    found = [thing]
    for part in re.split(r"(?<!\\)\.", path)[1:]:
        name, _, every = part.replace("\\.", ".").partition("[*]")
        found = [item[name] for item in found if isinstance(item, dict) and name in item]
        found = [entry for item in found for entry in item] if part.endswith("[*]") or every else found
    return " ".join(map(str, found))


class RecordedCluster:
    """All objects by ``kind/namespace/name``, releases, clusters and images, and the failures that the tools play."""

    def __init__(self, state):
        """Take what ``world.json`` says."""
        self.state = state
        self.objects = state.setdefault("objects", {})
        self.releases = state.setdefault("releases", {})
        self.clusters = state.setdefault("clusters", [])

    def key(self, kind, name, namespace):
        """Return under which key an object is kept."""
        return f"{kind}/{'' if kind in CLUSTER_SCOPED else namespace or 'default'}/{name}"

    def add(self, key, thing):
        """Keep a new object. Failure when it exists, or its namespace does not."""
        if key in self.objects:
            raise ToolFailure(f"Error from server (AlreadyExists): {key} already exists")
        namespace = key.split("/")[1]
        if namespace and f"namespace//{namespace}" not in self.objects:
            raise ToolFailure(f'Error from server (NotFound): namespaces "{namespace}" not found')
        self.objects[key] = thing

    # -- kubectl -------------------------------------------------------------------------------------------------

    def kubectl(self, argv, stdin):
        """Answer as kubectl."""
        flag(argv, "--context")
        if not self.state.get("reachable", True):
            raise ToolFailure("The connection to the server 127.0.0.1:1 was refused\nsecond line")
        handler = getattr(self, f"kubectl_{argv[0]}", None)
        return handler(argv[1:], stdin) if handler else ""

    def kubectl_auth(self, argv, _stdin):
        """Answer ``auth can-i VERB RESOURCE``."""
        return "no" if argv[2] in self.state.get("forbidden", []) else "yes"

    def kubectl_get(self, argv, _stdin):
        """Answer ``get``: one object, or all nodes."""
        if "--raw" in argv:
            return "{}"
        output, namespace = flag(argv, "--output"), flag(argv, "--namespace")
        quiet = switch(argv, "--ignore-not-found")
        if argv[0] == "nodes":
            return jsonpath({"items": self.state.get("nodes", [])}, (output or "jsonpath=").removeprefix("jsonpath="))
        found = self.objects.get(self.key(argv[0], argv[1], namespace))
        if found is None:
            if quiet:
                return ""
            raise ToolFailure(f"Error from server (NotFound): {argv[1]} not found")
        return f"{argv[0]}/{argv[1]}" if output == "name" else jsonpath(found, output.removeprefix("jsonpath="))

    def kubectl_create(self, argv, _stdin):
        """Create a namespace, a Secret of type tls or a ConfigMap."""
        namespace = flag(argv, "--namespace")
        if argv[0] == "namespace":
            self.add(f"namespace//{argv[1]}", {"status": {"phase": "Active"}, "metadata": {"labels": {}}})
        elif argv[0] == "secret":
            certificate = Path(flag(argv, "--cert")).read_bytes()
            data = {"tls.crt": binascii.b2a_base64(certificate).decode()}
            self.add(self.key("secret", argv[2], namespace), {"data": data, "metadata": {"labels": {}}})
        elif argv[0] == "configmap":
            name, _, file = flag(argv, "--from-file").partition("=")
            metadata = {"name": argv[1], "namespace": namespace}
            manifest = {"kind": "ConfigMap", "metadata": metadata, "data": {name: Path(file).read_text()}}
            if "--dry-run=client" in argv:
                return json.dumps(manifest)
            self.add(self.key("configmap", argv[1], namespace), manifest)
        return ""

    def kubectl_apply(self, _argv, stdin):
        """Keep the objects from standard input, JSON or YAML, by their kind, namespace and name."""
        found = {name: re.search(rf'"?\b{name}"?: "?([\w.-]+)', stdin) for name in ("kind", "name", "namespace")}
        if all(found.values()):
            kind, name, namespace = (match[1] for match in found.values())
            self.objects[self.key(kind.lower(), name, namespace)] = {"applied": stdin}
        return ""

    def kubectl_label(self, argv, _stdin):
        """Set labels; a value is not overwritten unless asked."""
        namespace, over = flag(argv, "--namespace"), switch(argv, "--overwrite")
        found = self.objects.get(self.key(argv[0], argv[1], namespace), {"metadata": {"labels": {}}})
        for pair in argv[2:]:
            name, _, text = pair.partition("=")
            if not text:
                continue
            if found["metadata"]["labels"].get(name, text) != text and not over:
                raise ToolFailure(f"error: '{name}' already has a value, and --overwrite is false")
            found["metadata"]["labels"][name] = text
        return ""

    def kubectl_delete(self, argv, _stdin):
        """Delete an object. Failure when there is none, unless the call ignores missing objects."""
        namespace, quiet = flag(argv, "--namespace"), switch(argv, "--ignore-not-found")
        if self.objects.pop(self.key(argv[0], argv[1], namespace), None) is None and not quiet:
            raise ToolFailure(f"Error from server (NotFound): {argv[1]} not found")
        return ""

    def kubectl_rollout(self, _argv, _stdin):
        """Wait for pods."""
        if not self.state.get("ready", True):
            raise ToolFailure("error: timed out waiting for the condition")
        return ""

    # -- the others ----------------------------------------------------------------------------------------------

    def helm(self, argv, _stdin):
        """Answer as helm."""
        flag(argv, "--kube-context")
        if argv[0] == "version":
            return self.state.get("helm", "v3.19.2")
        namespace = flag(argv, "--namespace")
        if argv[0] == "upgrade":
            self.releases[f"{namespace}/{argv[2]}"] = argv
            return ""
        key = f"{namespace}/{argv[1]}"
        if key not in self.releases:
            raise ToolFailure("Error: release: not found")
        if argv[0] == "uninstall":
            del self.releases[key]
        return ""

    def kind(self, argv, _stdin):
        """Answer as kind."""
        if argv[:2] == ["get", "clusters"]:
            return "\n".join(self.clusters)
        if argv[0] == "create":
            name = flag(argv, "--name")
            if name in self.clusters:
                raise ToolFailure("ERROR: node(s) already exist for a cluster with the name")
            self.clusters.append(name)
        elif argv[0] == "delete":
            self.clusters.remove(flag(argv, "--name"))
        return ""

    def docker(self, argv, _stdin):
        """Answer as a container engine."""
        if argv[:2] == ["image", "inspect"] and argv[2] not in self.state.get("images", []):
            raise ToolFailure("No such image")
        if argv[0] == "save":
            Path(argv[2]).write_text("image")
        return ""

    podman = docker

    def openssl(self, argv, _stdin):
        """Make a certificate, or say whether one ends soon."""
        if argv[0] == "req":
            Path(argv[argv.index("-out") + 1]).write_text(CERTIFICATE)
            Path(argv[argv.index("-keyout") + 1]).write_text("-----BEGIN PRIVATE KEY-----\nsecret of the key\n")
        elif argv[0] == "x509" and self.state.get("expiring", False):
            raise ToolFailure("Certificate will expire")
        return ""


def files(argv):
    """Return what the files named in a call hold now; they are gone when the script ends. Keys are not read."""
    given = [argv[at + 1].partition("=")[2] for at, word in enumerate(argv) if word in {"--set-file", "--from-file"}]
    given += [argv[at + 1] for at, word in enumerate(argv) if word == "--values"]
    return {name: Path(name).read_text() for name in given if Path(name).exists()}


def main():
    """Record the call and answer it."""
    tool, argv = Path(sys.argv[0]).name, sys.argv[1:]
    folder = Path(os.environ["RECORDED"])
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stdin = sys.stdin.read() if "-" in argv else ""
        with (folder / "calls.jsonl").open("a") as record:
            record.write(json.dumps({"tool": tool, "argv": argv, "stdin": stdin, "files": files(argv)}) + "\n")
        world = RecordedCluster(json.loads((folder / "world.json").read_text()))
        try:
            answer = getattr(world, tool)(list(argv), stdin)
        except ToolFailure as failure:
            sys.stderr.write(f"{failure}\n")
            return 1
        (folder / "world.json").write_text(json.dumps(world.state))
    sys.stdout.write(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
