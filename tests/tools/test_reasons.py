"""Tests that each reason of base/reason.h has a test, and that clients retry as the table says."""

import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(ROOT / "clients" / "python"))
from reasons import reasons
from sluice_client.errors import error_of
from sluice_client.retry import Retry

UNARY = "server/inference/unary_infer_test.cc"
FAILING = "engine/runner/failing_device_test.cc"
PART = (UNARY, "AnErrorNamesThePartOfTheRequestThatIsWrong")
CALLERS = ("e2e/test_callers.py", "test_every_method_refuses_unknown_callers")
ADMISSION = ("engine/schedule/admission_control_test.cc", "kAdmissionControlRows")
BY_CODE = ("base/reason_test.cc", "FollowsFromTheCodeOfAnErrorWithoutAReason")

# The file below tests/ and the test, or the table of a test, that produces each reason.
TESTS = {
    "malformed": (UNARY, "MalformedProtobufIsInvalidAndNeverQueued"),
    "request": PART,
    "input": PART,
    "parameter": PART,
    "output": PART,
    "credential_missing": CALLERS,
    "token_unknown": CALLERS,
    "priority": ("server/protocol/request/request_terms_test.cc",
                 "AMoreUrgentLevelIsDeniedAndTheDefaultIsWithinTheLimit"),
    "rate_limited": ("server/inference/preparation_test.cc",
                     "ACallerIsChargedForItsTextBeforeEncoding"),
    "queue_full": (UNARY, "AFullQueueAnswersWithAPushback"),
    "deadline_unreachable": ADMISSION,
    "too_busy": ("server/admin/admin_service_test.cc",
                 "ReviewsBeyondTheQueueAreRefusedAtOnce"),
    "memory": ("server/daemon/overload_test.cc",
               "ConnectionsAreRefusedFirstAndThenRequests"),
    "unread_answers": ("server/inference/unread_answers_test.cc",
                       "ACallerThatDoesNotReadIsRefusedAndKeepsALimitedAmount"),
    "stream_stalled": ("server/inference/slow_reader_test.cc", "EndsWithResourceExhausted"),
    "device_memory": (FAILING, "OnlyTheRowThatNeverFitsInMemoryFails"),
    "device_lost": (FAILING, "ALostDeviceEndsTheRequestsOfItsStep"),
    "hung": (FAILING, "AHungReplayEndsTheRequestsOfItsModelOnly"),
    "draining": ("server/daemon/drain_test.cc", "AcceptedRequestsFinishAndNewOnesAreRefused"),
    "cancelled": BY_CODE,
    "unknown": BY_CODE,
    "invalid_argument": BY_CODE,
    "deadline": ADMISSION,
    "not_found": (UNARY, "UnknownModelsAndVersionsAreNotFound"),
    "permission_denied": ("server/daemon/server_test.cc",
                          "TheInferencePortRefusesAdminCalls"),
    "resource_exhausted": BY_CODE,
    "failed_precondition": BY_CODE,
    "out_of_range": BY_CODE,
    "unimplemented": BY_CODE,
    "internal": BY_CODE,
    "unavailable": ("server/admin/admin_service_test.cc",
                    "ReviewsAreUnavailableUntilTheServerIsReady"),
    "data_loss": BY_CODE,
}


def test_each_reason_has_a_test():
    assert set(TESTS) == {reason.name for reason in reasons()}


@pytest.mark.parametrize("reason", reasons(), ids=lambda reason: reason.name)
def test_the_test_of_a_reason_names_it(reason):
    file, name = TESTS[reason.name]
    text = (ROOT / "tests" / file).read_text()
    body = re.search(rf"\b{name}\b.*?(?=^\}}|^def |\Z)", text, re.DOTALL | re.MULTILINE)
    assert body, f"{file} has no {name}"
    assert re.search(rf'"{reason.name}"|Reason::{reason.enumerator}\b', body[0])


@pytest.mark.parametrize("reason", reasons(), ids=lambda reason: reason.name)
def test_the_python_client_retries_as_the_table_says(reason):
    pushback = "50" if reason.status == "RESOURCE_EXHAUSTED" else None
    error = error_of(reason.status, "why", reason.name, pushback)
    delay = Retry().delay_s(error, failures=1, away=1, remaining_s=60)
    assert (delay is not None) == reason.retryable
