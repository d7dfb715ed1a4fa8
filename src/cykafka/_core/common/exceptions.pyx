"""Exceptions that several callbacks raise in one call, and those that no call can raise."""
from cpython.exc cimport PyErr_SetObject, PyErr_WriteUnraisable


cdef object chain(object earlier, object later):
    """The exception to raise for two, with the other one as the last of its contexts. The later
    one, unless only the earlier one ends the program (Ctrl-C, SystemExit)."""
    if earlier is None or earlier is later:
        return later
    if isinstance(later, Exception) and not isinstance(earlier, Exception):
        earlier, later = later, earlier
    last, known = later, [earlier]
    while known[-1].__context__ is not None and len(known) < MAX_CONTEXTS:
        if known[-1].__context__ is later:  # Python's own link: raised while this one was handled
            known[-1].__context__ = None
            break
        known.append(known[-1].__context__)
    for _ in range(MAX_CONTEXTS):
        if last.__context__ is None:
            break
        last = last.__context__
    if not any(each is last for each in known):
        last.__context__ = earlier
    return later


cdef void write_unraisable(object exception, object source) noexcept:
    """Have sys.unraisablehook print an exception that no call of the program can raise."""
    # Without this, Cython prints it with PyErr_PrintEx(), and SystemExit ends the process.
    PyErr_SetObject(type(exception), exception)
    PyErr_WriteUnraisable(source)
