"""What an object holds, read without running the user's code: no getattr, no property, no `__eq__`, no `__iter__`."""

from memguard.probes.objects.attributes import attributes_of, is_user_class, mro_of, namespace_of
from memguard.probes.objects.elements import container_of, length_of, unwrapped
from memguard.probes.objects.functions import function_behind
from memguard.probes.objects.held import Held, Scope, Via
from memguard.probes.objects.reading import Contents

__all__ = [
    "Contents",
    "Held",
    "Scope",
    "Via",
    "attributes_of",
    "container_of",
    "function_behind",
    "is_user_class",
    "length_of",
    "mro_of",
    "namespace_of",
    "unwrapped",
]
