"""What programs do to a model; each returns numbers that a guard must not change."""

from __future__ import annotations

from tests.chaos.programs import changes, failures, hostile_objects, settings, sizes, tracing

PROGRAMS = (
    hostile_objects.hostile_module,
    hostile_objects.names_of_its_own,
    hostile_objects.hostile_batches,
    hostile_objects.hostile_loader,
    hostile_objects.hostile_variables_beside_a_leak,
    hostile_objects.iterable_dataset_without_a_length,
    failures.threads_call_the_model,
    failures.trained_in_another_thread,
    failures.exceptions_of_the_user,
    failures.failures_outside_of_the_forward,
    changes.model_replaced_moved_copied_between_batches,
    changes.quantized_between_batches,
    changes.quantized_in_place,
    changes.compiled_in_place,
    changes.weights_exchanged,
    changes.replaced_by_another,
    tracing.function_transforms,
    tracing.traced_and_exported,
    tracing.compiled_inside,
    settings.garbage_is_not_collected,
    settings.deterministic_algorithms,
    settings.default_device_and_dtype,
    settings.inference_mode_inside,
    settings.made_in_inference_mode,
    settings.under_anomaly_detection_and_a_profile_function,
    sizes.very_deep_module,
    sizes.many_parameters,
    sizes.mixed_devices,
)
