"""What `python -m everycall attach` and `detach` do in the program itself: see _attach.py."""

import os

import everycall

# Of the attachment that is there: which process has made it (its id and start; None: nobody waits for
# its end), and whether everything that is recorded is recorded for it.
_owner = None
_is_attached = False
_is_alone = False


def _start_of(pid):
    """When a process began, in ticks; None if it isn't there."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except OSError:
        return None


def _is_alive(owner):
    return _start_of(owner[0]) == owner[1]


def begin(folder, ring_size, wanted, owner):
    """Loads the runtime if it isn't there, and starts. A dict with an error, or a note."""
    global _owner, _is_attached, _is_alone
    note = None
    if not everycall._hook:
        return {"error": f"the program can't load everycall's hook: {everycall._refusal}"}
    if owner is not None and _start_of(owner) is None:
        return {"error": "whoever attached to it has ended"}
    is_there = everycall.is_recorded()
    if everycall.status()["started"]:
        if not _is_attached:
            return {"error": "it is recorded already, since it started or by its own everycall.start(): use everycall snapshot, trace or trigger, with its process id"}
        if _owner is None:
            return {"error": "it is attached to already, with --stay: use everycall snapshot, trace or trigger, with its process id, or detach first"}
        if _is_alive(_owner):
            return {"error": f"it is attached to already, by process {_owner[0]}: use everycall snapshot, trace or trigger, with its process id"}
        # Whoever attached was killed.
        end()
    if not is_there:
        # So it listens to `everycall trace` though nothing is recorded otherwise.
        ours = {"EVERYCALL_START": "off"}
        if ring_size is not None:
            ours["EVERYCALL_RING_SIZE"] = ring_size
        before = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)
        try:
            everycall._load_from(folder)
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
    elif ring_size is not None:
        note = "it has its rings already, which --ring-size doesn't change"
    if not everycall._start_words(wanted, False):
        return {"error": "the runtime of everycall that was loaded into it isn't found by the hook"}
    _owner = owner and (owner, _start_of(owner))
    _is_attached = True
    _is_alone = not is_there or _is_alone
    return {"note": note}


def end():
    """Ends it: the program runs as it did before."""
    global _is_attached
    if not _is_attached:
        return {"error": "it isn't attached to"}
    everycall._stop(False)
    _is_attached = False
    return {"is_alone": _is_alone}
