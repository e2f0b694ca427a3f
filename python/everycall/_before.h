/*
 * Frames that were open when recording began: their entries weren't recorded, so their exits aren't
 * either. Those that were recorded before recording was stopped are known: they are still open.
 */

/* Addresses in their order. The lowest bit is set in those that have been left. */
typedef struct {
    uintptr_t *frames;
    size_t count;
} FrameSet;

static FrameSet begun_before, recorded_before;
/* Those of `begun_before` that are open. */
static size_t before_open;

static int by_address(const void *one, const void *other)
{
    uintptr_t a = *(const uintptr_t *)one & ~(uintptr_t)1, b = *(const uintptr_t *)other & ~(uintptr_t)1;
    return a < b ? -1 : a > b;
}

static uintptr_t *find_frame(const FrameSet *set, uintptr_t frame)
{
    return set->count ? bsearch(&frame, set->frames, set->count, sizeof frame, by_address) : NULL;
}

/* Of this package, whose frames make room for others as soon as start() or stop() returns. */
static int is_own(const Frame *frame)
{
    /* The lowest bits are tags. */
    PyObject *code = (PyObject *)((uintptr_t)frame->code & ~(uintptr_t)3);
    return code && PyCode_Check(code) && known_of((PyCodeObject *)code) & OWN;
}

/* The frames of all threads that aren't in `without`. Without memory, none. */
static FrameSet open_frames(const FrameSet *without)
{
    FrameSet set = {NULL, 0};
    size_t room = 0;
    for (PyThreadState *state = PyInterpreterState_ThreadHead(PyInterpreterState_Main()); state; state = PyThreadState_Next(state)) {
        for (Frame *frame = frame_of(state); frame; frame = frame->previous) {
            const uintptr_t *known = find_frame(without, (uintptr_t)frame);
            if (frame->state.owner >= OWNED_BY_C || (known && !(*known & 1)) || is_own(frame))
                continue;
            if (set.count == room) {
                room = room ? 2 * room : 64;
                uintptr_t *more = realloc(set.frames, room * sizeof *more);
                if (!more) {
                    free(set.frames);
                    return (FrameSet){NULL, 0};
                }
                set.frames = more;
            }
            set.frames[set.count++] = (uintptr_t)frame;
        }
    }
    if (set.count)
        qsort(set.frames, set.count, sizeof *set.frames, by_address);
    return set;
}

static void note_start(void)
{
    free(begun_before.frames);
    begun_before = open_frames(&recorded_before);
    before_open = begun_before.count;
}

static void note_stop(void)
{
    free(recorded_before.frames);
    recorded_before = open_frames(&begun_before);
}

/* Whether the current frame, which is left, was open when recording began. */
static __attribute__((noinline)) int was_begun_before(void)
{
    uintptr_t *found = find_frame(&begun_before, (uintptr_t)current_frame());
    if (!found || *found & 1)
        return 0;
    *found |= 1;
    before_open--;
    return 1;
}
