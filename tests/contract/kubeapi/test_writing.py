"""What an agent relies on when it writes, and who may, of the fake as of a real API server."""

from __future__ import annotations

import pytest

from lab.kubeapi.api import Api, Document, binding, pod

pytestmark = pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")

LEASE = {"metadata": {"name": "one"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}


def reason(answer_body: Document) -> tuple[int, str]:
    return answer_body["code"], answer_body.get("reason", "")


def test_what_is_there_already_is_no_conflict_of_versions(api: Api) -> None:
    assert api.post(api.pods, pod("a")).status == 201
    again = api.post(api.pods, pod("a"))
    assert reason(again.body) == (409, "AlreadyExists")
    assert again.body["details"] == {"name": "a", "kind": "pods"}


def test_an_update_of_an_old_version_is_refused(api: Api) -> None:
    made = api.post(api.leases, LEASE)
    renewed = {**made.body, "spec": {**made.body["spec"], "leaseTransitions": 1}}
    assert api.put(f"{api.leases}/one", renewed).status == 200
    stale = api.put(f"{api.leases}/one", renewed)
    assert reason(stale.body) == (409, "Conflict")
    assert "the object has been modified" in stale.body["message"]


def test_a_lease_is_not_updated_without_a_version(api: Api) -> None:
    made = api.post(api.leases, LEASE)
    del made.body["metadata"]["resourceVersion"]
    refused = api.put(f"{api.leases}/one", made.body)
    assert reason(refused.body) == (422, "Invalid")
    assert refused.body["details"]["causes"][0]["field"] == "metadata.resourceVersion"


def test_a_lease_is_given_back_by_taking_its_holder_away(api: Api) -> None:
    api.post(api.leases, LEASE)
    given_back = api.patch(f"{api.leases}/one", {"spec": {"holderIdentity": None}})
    assert "holderIdentity" not in given_back.body["spec"]


@pytest.mark.parametrize("path", ["nowhere", "pods/nope"])
def test_what_is_not_there_is_said_so(api: Api, path: str) -> None:
    answer = api.get(f"/api/v1/namespaces/{api.namespace}/{path}")
    assert reason(answer.body) == (404, "NotFound")


def test_a_group_that_is_not_there_has_no_status(api: Api) -> None:
    answer = api.get("/apis/none.example/v1/things")
    assert (answer.status, answer.body) == (404, "404 page not found\n")


def test_a_missing_namespace_lists_nothing_and_takes_nothing(api: Api) -> None:
    pods = "/api/v1/namespaces/contract-nowhere/pods"
    assert api.get(pods).body["items"] == []
    assert api.post(pods, pod("a")).body["details"]["kind"] == "namespaces"


def test_binding_answers_with_a_status_and_the_pod_has_its_node(api: Api) -> None:
    made = api.post(api.pods, pod("a"))
    bound = api.post(f"{api.pods}/a/binding", binding("a", "n1", uid=made.body["metadata"]["uid"]))
    assert bound.status == 201
    assert (bound.body["kind"], bound.body["status"]) == ("Status", "Success")
    after = api.get(f"{api.pods}/a").body
    assert after["spec"]["nodeName"] == "n1"
    (condition,) = after["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_pod_is_bound_once(api: Api, node: str) -> None:
    api.post(api.pods, pod("a"))
    api.post(f"{api.pods}/a/binding", binding("a", "n1"))
    again = api.post(f"{api.pods}/a/binding", binding("a", node))
    assert reason(again.body) == (409, "Conflict")
    assert 'already assigned to node "n1"' in again.body["message"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (binding("a", "n1", uid="00000000-0000-0000-0000-000000000000"), 409),
        (binding("a", "n1", resourceVersion="1"), 409),
        (binding("b", "n1"), 400),
        ({"metadata": {"name": "a"}}, 500),
        ({"metadata": {"name": "a"}, "target": {"kind": "Minion", "name": "n1"}}, 500),
    ],
)
def test_bindings_that_are_refused(api: Api, body: Document, status: int) -> None:
    api.post(api.pods, pod("a"))
    assert api.post(f"{api.pods}/a/binding", body).status == status
    assert "nodeName" not in api.get(f"{api.pods}/a").body["spec"]


def test_a_dry_run_stores_nothing(api: Api) -> None:
    assert api.post(api.pods, pod("a"), dryRun="All").status == 201
    assert api.get(api.pods).names == []


def test_conditions_merge_by_their_type(api: Api) -> None:
    api.post(api.pods, pod("a"))
    for kind, status in (("PodScheduled", "False"), ("Ready", "False"), ("PodScheduled", "True")):
        patch = {"status": {"conditions": [{"type": kind, "status": status}]}}
        assert api.patch(f"{api.pods}/a/status", patch, kind="strategic-merge").status == 200
    conditions = api.get(f"{api.pods}/a").body["status"]["conditions"]
    assert {each["type"]: each["status"] for each in conditions} == {
        "PodScheduled": "True",
        "Ready": "False",
    }


def test_an_event_belongs_to_the_namespace_of_what_it_is_about(api: Api) -> None:
    events = f"/api/v1/namespaces/{api.namespace}/events"
    about = {"kind": "Pod", "namespace": api.namespace, "name": "a"}
    event = {
        "metadata": {"generateName": "a."},
        "involvedObject": about,
        "reason": "Tried",
        "type": "Normal",
        "source": {"component": "contract"},
    }
    assert api.post(events, event).status == 201
    elsewhere = {**event, "involvedObject": {**about, "namespace": "default"}}
    assert reason(api.post(events, elsewhere).body) == (422, "Invalid")


def test_nobodys_token_is_unauthorized(api: Api) -> None:
    other = api.like_this("nobodys")
    answer = other.get(api.pods)
    other.close()
    assert reason(answer.body) == (401, "Unauthorized")


def test_without_a_token_only_health_is_told(api: Api) -> None:
    anonymous = api.like_this(None)
    refused, healthy = anonymous.get(api.pods), anonymous.get("/readyz")
    anonymous.close()
    assert reason(refused.body) == (403, "Forbidden")
    assert 'User "system:anonymous" cannot list resource "pods"' in refused.body["message"]
    assert (healthy.status, healthy.body) == (200, "ok")


def test_the_cluster_has_a_uid(api: Api) -> None:
    answer = api.get("/api/v1/namespaces/kube-system")
    assert answer.body["metadata"]["uid"]
