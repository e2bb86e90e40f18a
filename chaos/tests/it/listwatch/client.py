"""What programs do with the Kubernetes client for Python, one step after the other."""

import threading

import kubernetes
from kubernetes import client, config, watch

NAMESPACE = "default"


def config_map(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"by": "python"}), data=data)


def reads_and_writes(core):
    made = core.create_namespaced_config_map(NAMESPACE, config_map("one", a="1"))
    assert made.metadata.uid and made.metadata.resource_version
    listed = core.list_namespaced_config_map(NAMESPACE, label_selector="by=python")
    assert [item.metadata.name for item in listed.items] == ["one"]
    assert int(listed.metadata.resource_version) >= int(made.metadata.resource_version)
    made.data["a"] = "2"
    changed = core.replace_namespaced_config_map("one", NAMESPACE, made)
    try:
        core.replace_namespaced_config_map("one", NAMESPACE, made)
        raise AssertionError("a version that is gone was taken")
    except client.ApiException as error:
        assert error.status == 409, error
    patched = core.patch_namespaced_config_map("one", NAMESPACE, {"data": {"b": "3"}})
    assert patched.data == {"a": "2", "b": "3"}
    assert int(patched.metadata.resource_version) > int(changed.metadata.resource_version)
    core.delete_namespaced_config_map("one", NAMESPACE)
    try:
        core.read_namespaced_config_map("one", NAMESPACE)
        raise AssertionError("it is still there")
    except client.ApiException as error:
        assert error.status == 404, error


def pages(core):
    for number in range(25):
        core.create_namespaced_config_map(NAMESPACE, config_map(f"page-{number:02}"))
    names, token = [], None
    while True:
        page = core.list_namespaced_config_map(NAMESPACE, limit=10, _continue=token, label_selector="by=python")
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert names == [f"page-{number:02}" for number in range(25)], names
    core.delete_collection_namespaced_config_map(NAMESPACE, label_selector="by=python")
    assert core.list_namespaced_config_map(NAMESPACE, label_selector="by=python").items == []


def watches(core):
    start = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    told = []

    def follow():
        stream = watch.Watch().stream(
            core.list_namespaced_config_map, NAMESPACE, resource_version=start, timeout_seconds=30
        )
        for event in stream:
            told.append((event["type"], event["object"].metadata.name))
            if told[-1][0] == "DELETED":
                return

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    core.create_namespaced_config_map(NAMESPACE, config_map("seen"))
    core.patch_namespaced_config_map("seen", NAMESPACE, {"data": {"x": "y"}})
    core.delete_namespaced_config_map("seen", NAMESPACE)
    follower.join(timeout=20)
    assert told == [("ADDED", "seen"), ("MODIFIED", "seen"), ("DELETED", "seen")], told


def watch_that_times_out_goes_on(core):
    """A Watch without a time limit comes back when the server ends its stream."""
    stop = watch.Watch()
    seen = []
    core.create_namespaced_config_map(NAMESPACE, config_map("first"))
    for event in stop.stream(core.list_namespaced_config_map, NAMESPACE, timeout_seconds=1):
        seen.append(event["object"].metadata.name)
    assert "first" in seen, seen


def custom_kind(core, custom, extensions):
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "lamps.python.example.com"},
        "spec": {
            "group": "python.example.com",
            "scope": "Cluster",
            "names": {"plural": "lamps", "kind": "Lamp"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                }
            ],
        },
    }
    extensions.create_custom_resource_definition(definition)
    lamp = {"apiVersion": "python.example.com/v1", "kind": "Lamp", "metadata": {"name": "l"}, "on": True}
    custom.create_cluster_custom_object("python.example.com", "v1", "lamps", lamp)
    listed = custom.list_cluster_custom_object("python.example.com", "v1", "lamps")
    assert [item["on"] for item in listed["items"]] == [True]
    extensions.delete_custom_resource_definition("lamps.python.example.com")


def main():
    print("kubernetes", kubernetes.__version__)
    config.load_kube_config()
    core = client.CoreV1Api()
    for step in (reads_and_writes, pages, watches, watch_that_times_out_goes_on):
        step(core)
        print(step.__name__)
    custom_kind(core, client.CustomObjectsApi(), client.ApiextensionsV1Api())
    print("all held")


main()
