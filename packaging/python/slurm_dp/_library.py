# SPDX-License-Identifier: Apache-2.0
"""libdp.so by ctypes: its functions, its structures, and its errors as exceptions. The one module that knows C."""
import ctypes
import os

DEFAULT_TIMEOUT = -1  # DP_TIMEOUT_DEFAULT: the step's --dp-timeout
UNIQUE_ID_BYTES = 128
MAX_VALUE_BYTES = 1 << 20

_STATUSES = ("ok", "no step", "invalid", "timed out", "lost", "aborted", "not found", "too large", "backend",
             "peer lost")  # by dp_status
EVENTS = ("deaths", "ending", "lost", "peer lost")  # by dp_event_kind
PHASES = ("idle", "compute", "load", "communication", "checkpoint")  # by dp_phase_kind
DIMENSIONS = ("tensor", "data", "pipeline")  # by dp_dimension


class Error(Exception):
    """Why slurm-dp could not do what was asked, in one line.

    status: "no step", "invalid", "timed out", "lost" (this node's daemon is gone), "aborted" (the step is being ended), "not found",
    "too large", "backend" or "peer lost" (call World.rejoin).
    """

    def __init__(self, status: str, message: str):
        super().__init__(message)
        self.status = status

    def __reduce__(self):
        return type(self), (self.status, str(self))


Error.__module__ = "slurm_dp"


class World(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("rank", "size", "local_rank", "local_size", "node_rank", "nodes", "generation")] + [
        ("master_addr", ctypes.c_char_p), ("master_port", ctypes.c_uint16), ("node_addr", ctypes.c_char_p)]


class Group(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("members", ctypes.POINTER(ctypes.c_uint32)), ("count", ctypes.c_size_t)]


class Place(ctypes.Structure):
    _fields_ = [("rank", ctypes.c_uint32), ("size", ctypes.c_uint32), ("group", Group)]


class Event(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("reason", ctypes.c_char_p), ("ranks", ctypes.POINTER(ctypes.c_uint32)), ("count", ctypes.c_size_t)]


class Changes(ctypes.Structure):
    _fields_ = [("previous_rank", ctypes.c_uint32), ("previous_size", ctypes.c_uint32), ("reason", ctypes.c_char_p),
                ("replaced", ctypes.POINTER(ctypes.c_uint32)), ("replaced_count", ctypes.c_size_t)]


class Fact(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_char_p), ("rule", ctypes.c_int), ("remedy", ctypes.c_char_p)]


ON_EVENT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Event))
MAKE_ID = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint8))

_context, _text, _size, _status, _time = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int64
_group, _size_out = ctypes.POINTER(Group), ctypes.POINTER(ctypes.c_size_t)
_PROTOTYPES = {
    "dp_in_step": (ctypes.c_int, []),
    "dp_open": (_status, [ctypes.POINTER(_context)]),
    "dp_close": (None, [_context]),
    "dp_end": (None, [_context]),
    "dp_get_world": (ctypes.POINTER(World), [_context]),
    "dp_last_error": (_text, []),
    "dp_on_event": (_status, [_context, ON_EVENT, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64)]),
    "dp_forget_event": (None, [_context, ctypes.c_uint64]),
    "dp_rejoin": (_status, [_context, ctypes.POINTER(Changes), _time]),
    "dp_barrier": (_status, [_context, _group, _time]),
    "dp_unique_id": (_status, [_context, _group, MAKE_ID, ctypes.c_void_p, _text, _time]),
    "dp_broadcast": (_status, [_context, _group, _text, _size, _text, _size, _size_out, _time]),
    "dp_agree": (_status, [_context, _group, ctypes.POINTER(Fact), _size, _time]),
    "dp_get_place": (_status, [_context, ctypes.c_int, ctypes.POINTER(Place)]),
    "dp_set": (_status, [_context, _text, _text, _size, _time]),
    "dp_get": (_status, [_context, _text, _text, _size, _size_out, _time]),
    "dp_wait": (_status, [_context, ctypes.POINTER(_text), _size, _time]),
    "dp_add": (_status, [_context, _text, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64), _time]),
    "dp_compare_set": (_status, [_context, _text, _text, _size, _text, _size, _text, _size, _size_out, _time]),
}
# Called at every step: they never wait, so they keep the interpreter's lock.
_QUICK_PROTOTYPES = {
    "dp_at_step": (None, [_context, ctypes.c_uint64]),
    "dp_enable_rejoin": (None, [_context]),
    "dp_phase": (_status, [_context, ctypes.c_int]),
    "dp_log_scalar": (_status, [_context, _text, ctypes.c_double]),
}


class Library:
    """libdp's functions by name; each fails with an Error whose text is libdp's."""

    def __init__(self):
        # A wheel brings libdp and what it needs; the Debian package has both from the system.
        folder = os.path.join(os.path.dirname(__file__), "lib")
        try:
            for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                if not name.startswith("libdp."):
                    ctypes.CDLL(os.path.join(folder, name))
            path = os.path.join(folder, "libdp.so.0")
            self.path = path if os.path.exists(path) else "libdp.so.0"
            library, quick = ctypes.CDLL(self.path), ctypes.PyDLL(self.path)
        except OSError as error:
            raise Error("backend", f"libdp cannot be loaded: {error}; install slurm-dp's wheel or package again") from None
        for loaded, prototypes in ((library, _PROTOTYPES), (quick, _QUICK_PROTOTYPES)):
            for name, (result, arguments) in prototypes.items():
                try:
                    function = getattr(loaded, name)
                except AttributeError:
                    raise Error("backend", f"{self.path} is another version of libdp than this package was made for: it has no {name}; "
                                           "install both from one release") from None
                function.restype, function.argtypes = result, arguments
                setattr(self, name, function)

    def check(self, status: int) -> None:
        """Raises what the calling thread's last call failed with."""
        if status != 0:
            name = _STATUSES[status] if 0 <= status < len(_STATUSES) else f"status {status}"
            raise Error(name, self.dp_last_error().decode(errors="replace"))


def nccl_unique_id() -> bytes:
    """ncclGetUniqueId of the NCCL that is loaded, or else of the system's."""
    try:
        nccl = ctypes.CDLL("libnccl.so.2")
    except OSError as error:
        raise Error("backend", f"NCCL cannot be loaded: {error}; give make=, a function that returns an id") from None
    room = ctypes.create_string_buffer(UNIQUE_ID_BYTES)
    status = nccl.ncclGetUniqueId(room)
    if status != 0:
        nccl.ncclGetErrorString.restype = ctypes.c_char_p
        raise Error("backend", f"ncclGetUniqueId failed: {nccl.ncclGetErrorString(status).decode()}")
    return room.raw
