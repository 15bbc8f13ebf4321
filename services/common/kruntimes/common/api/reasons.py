"""Condition types and their reasons, the words of the API (design §13, "conditions")."""

from enum import StrEnum


class RunCondition(StrEnum):
    """Run.status.conditions[].type."""

    READY = "Ready"
    BACKOFF = "Backoff"


class RuntimeCondition(StrEnum):
    """Runtime.status.conditions[].type."""

    AVAILABLE = "Available"
    PROGRESSING = "Progressing"


class Reason(StrEnum):
    """Reason of a Run's condition Ready; `retryPolicy.retryableReasons` names these."""

    UNSCHEDULED = "Unscheduled"
    RUNTIME_NOT_FOUND = "RuntimeNotFound"
    NO_READY_POD = "NoReadyPod"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    SCHEDULED = "Scheduled"
    PREPARING = "Preparing"
    SOURCE_FAILED = "SourceFailed"
    REGISTERING = "Registering"
    REGISTRATION_FAILED = "RegistrationFailed"
    RUNTIME_SERVER_FAILED = "RuntimeServerFailed"
    FUNCTION_UNSUPPORTED = "FunctionUnsupported"
    FUNCTION_REGISTERED = "FunctionRegistered"
    TASK_RUNNING = "TaskRunning"
    TASK_SUCCEEDED = "TaskSucceeded"
    TASK_FAILED = "TaskFailed"
    TASK_UNSUPPORTED = "TaskUnsupported"
    RUNTIME_POD_LOST = "RuntimePodLost"
    FENCED_POD_GONE = "FencedPodGone"
    FENCED_OUT_OF_ENDPOINTS = "FencedOutOfEndpoints"
    FENCED_UNREGISTERED = "FencedUnregistered"
    DRAINING = "Draining"
    CANCELLED = "Cancelled"
    LIFETIME_TIMEOUT = "LifetimeTimeout"
    IDLE_TIMEOUT = "IdleTimeout"
    RETRIES_EXHAUSTED = "RetriesExhausted"
