"""What ``wva doctor`` prints and its exit status, for findings that were made before."""

from __future__ import annotations

import pytest

from wva.api.meta import Key
from wva.cli.doctor import lines, status_of
from wva.doctor import Diagnosis, Link
from wva.doctor.examination import Examination
from wva.migration.objects import Subject

SUBJECT = Subject("VariantAutoscaling", Key("models", "chat"))
BROKEN = Diagnosis(Link.TARGET, "target-wrong", SUBJECT.must("is wrong", "change it"))
WARNING = Diagnosis(Link.PODS, "pod-not-ready", SUBJECT.should("is not Ready", "look at it"))
NOTE = Diagnosis(Link.VARIANT, "shadow-mode", SUBJECT.note("is in shadow mode"))


def found(*diagnoses, unread=()):
    """Return what an examination of one variant found."""
    return Examination(list(diagnoses), [SUBJECT.key], unread=list(unread))


@pytest.mark.parametrize(
    ("examination", "status"),
    [
        (found(), 0),
        (found(NOTE), 0),
        (found(NOTE, WARNING), 3),
        (found(WARNING, BROKEN), 1),
        (found(unread=["a part"]), 3),
        (found(BROKEN, unread=["a part"]), 1),
    ],
)
def test_the_status_is_that_of_the_worst(examination, status):
    """What was not looked at counts as a warning: nobody knows whether it is well."""
    assert status_of(examination) == status


def test_a_link_is_ok_only_if_everything_was_looked_at():
    """A link without a finding may be broken where a part could not be read, so the report does not call it ok."""
    whole, partly = list(lines(found(WARNING))), list(lines(found(WARNING, unread=["/api/v1/pods: forbidden"])))
    assert "target        ok" in whole
    assert "target        nothing found" in partly
    assert "pods" in whole
    assert "pods" in partly
    assert partly[partly.index("not looked at") + 1] == "  /api/v1/pods: forbidden"


def test_a_finding_has_its_object_and_what_mends_it():
    """A finding is two lines, and the last line counts them."""
    printed = list(lines(found(BROKEN, NOTE)))
    assert "  broken: target-wrong: VariantAutoscaling models/chat: is wrong" in printed
    assert (
        printed[printed.index("  broken: target-wrong: VariantAutoscaling models/chat: is wrong") + 1]
        == "    change it"
    )
    assert printed[-1] == "1 variants looked at: 1 broken, 0 warnings"
