/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libdp's C API: what a rank can ask of the world it was started in.
 *
 * A rank is a task of a Slurm step started with --dp-world, or of `dpctl launch`. Its environment (DP_SOCKET,
 * DP_RANK, ...) has everything that libdp needs. libdp talks to its node's daemon over an abstract unix
 * socket; it has no secret and no network connection of its own. C++ programs may prefer dp/dp.hpp.
 *
 * Threads:   Any thread may call any function, and the threads of a process may share a context. A context
 *            does not survive fork(): only the process that opened it may use it.
 * Ownership: Whoever opens a context closes it with dp_close. Strings returned as `const char *` belong to
 *            the context (for dp_last_error: to the calling thread) and must not be freed.
 * Time:      Timeouts are in milliseconds; DP_TIMEOUT_DEFAULT is the step's --dp-timeout. No call waits
 *            longer. Time in which the step is suspended (scontrol suspend) does not count.
 * Errors:    A dp_status. After anything but DP_OK, dp_last_error() returns one line that says what was
 *            tried, who is missing, and what to do.
 * Since:     0.1, all of it.
 */
#ifndef DP_DP_H
#define DP_DP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DP_VERSION_MAJOR 0
#define DP_VERSION_MINOR 1

/* Bytes of an NCCL unique id: sizeof(ncclUniqueId). */
#define DP_UNIQUE_ID_BYTES 128

#define DP_TIMEOUT_DEFAULT (-1)

typedef enum dp_status {
    DP_OK = 0,
    DP_ERROR_NO_STEP = 1,   /* not in a step of slurm-dp: DP_SOCKET is missing */
    DP_ERROR_INVALID = 2,   /* an argument or the environment is invalid */
    DP_ERROR_TIMEOUT = 3,   /* the deadline passed; the error names the missing ranks and their hosts */
    DP_ERROR_LOST = 4,      /* this node's daemon is gone, or does not answer */
    DP_ERROR_ABORTED = 5,   /* the step is being ended; the error names the rank that caused it */
    DP_ERROR_NOT_FOUND = 6, /* no such key */
    DP_ERROR_TOO_LARGE = 7, /* a value exceeds a limit below, or the given buffer */
    DP_ERROR_BACKEND = 8,   /* NCCL or Gloo failed; the error quotes it */
    /* After dp_enable_rejoin: another rank has died; call dp_rejoin to enter the next generation. */
    DP_ERROR_PEER_LOST = 9,
} dp_status;

/* Limits of the store, in bytes. */
#define DP_MAX_KEY_BYTES 8192
#define DP_MAX_VALUE_BYTES 1048576

typedef struct dp_context dp_context;

/* This rank's place in the world. Its strings stay valid until dp_close, even after dp_rejoin. */
typedef struct dp_world {
    uint32_t rank;           /* 0 .. size-1 */
    uint32_t size;           /* ranks in the world */
    uint32_t local_rank;     /* 0 .. local_size-1 on this node */
    uint32_t local_size;     /* ranks on this node */
    uint32_t node_rank;      /* 0 .. nodes-1 */
    uint32_t nodes;          /* nodes in the world */
    uint32_t generation;     /* 0, then one more after each restart of the job or its ranks */
    const char* master_addr; /* numeric address of rank 0's node */
    uint16_t master_port;    /* a port that is held free there for the rank that binds it */
    const char* node_addr;   /* numeric address of this node, as other nodes reach it */
} dp_world;

/* Ranks that act together. `members` are world ranks, ascending and without repetition; members == NULL means
 * the whole world. The first member is the root. `name`, at most 255 bytes, distinguishes groups with equal
 * members. */
typedef struct dp_group {
    const char* name;
    const uint32_t* members;
    size_t count;
} dp_group;

/* 1 if this process is a rank of a step of slurm-dp, so that dp_open can work; else 0. */
int dp_in_step(void);

/* Opens this rank's context and says hello to the node's daemon. On failure *context is NULL. */
dp_status dp_open(dp_context** context);

/* Says goodbye and frees the context; NULL is allowed. Other threads' pending calls return DP_ERROR_LOST. */
void dp_close(dp_context* context);

/* Says goodbye and ends all pending and later calls, as dp_close does, but does not free the context: for programs
 * whose other threads may be about to call. They get DP_ERROR_LOST. dp_close must follow; NULL is allowed. */
void dp_end(dp_context* context);

/* This rank's place in the world; valid until dp_close; dp_rejoin updates the struct in place. */
const dp_world* dp_get_world(const dp_context* context);

/* One line about the calling thread's last error, or "". Valid until the thread's next call. */
const char* dp_last_error(void);

/* The meaning of a status in two or three words. */
const char* dp_status_name(dp_status status);

/* ---- events: deaths and the end of the step, reported at once, whatever this rank is doing ---- */

typedef enum dp_event_kind {
    DP_EVENT_DEATHS = 0, /* ranks have died and the others continue (--dp-on-failure=report) */
    DP_EVENT_ENDING = 1, /* the step is being ended: every pending and later call fails with DP_ERROR_ABORTED,
                            and this process is about to get SIGTERM */
    DP_EVENT_LOST = 2,   /* the daemon of this node is gone: every call fails with DP_ERROR_LOST, and nobody
                            watches this rank any more */
    /* After dp_enable_rejoin: this generation ends; call dp_rejoin to enter the next one. Until then every pending
     * and later call fails with DP_ERROR_PEER_LOST. */
    DP_EVENT_PEER_LOST = 3,
} dp_event_kind;

/* What happened. Valid only during the call-back. */
typedef struct dp_event {
    dp_event_kind kind;
    const char* reason;    /* one line: "rank 5 on gpu02 was killed by signal 11 (SIGSEGV)" */
    const uint32_t* ranks; /* the dead ranks, ascending; none if no rank's death is the cause */
    size_t count;
} dp_event;

/* Runs on a thread of libdp, one event at a time. Events from before dp_on_event are delivered inside that
 * call, on the calling thread. The call-back should return soon. It must not call dp_close, and calls that
 * wait fail in it with DP_ERROR_INVALID. */
typedef void (*dp_event_callback)(void* user, const dp_event* event);

/* Delivers every event to the call-back from now on. *watch, which may be NULL, is for dp_forget_event. */
dp_status dp_on_event(dp_context* context, dp_event_callback callback, void* user, uint64_t* watch);

/* Once this returns, the call-back no longer runs (if called from inside a call-back: after that one
 * returns). Waits for a call-back that is running, so hold no lock that your call-backs take.
 * dp_close forgets all. */
void dp_forget_event(dp_context* context, uint64_t watch);

/* Says how far this rank's training is, so that a message about its death can say so: "... was killed by
 * signal 11 (SIGSEGV) at step 1200", and --dp-on-failure=restart sees progress and says how many steps a restart repeats. Meant for the end of every
 * step, with a count that grows over the whole training, not per epoch. Where the rank says its phases, too (dp_phase), it is also how a slow rank is
 * found (--dp-slow, dpctl top). Takes some microseconds, never waits and never fails. Sent at most every 10 ms, so with very short steps these
 * messages may name an earlier one. */
void dp_at_step(dp_context* context, uint64_t step);

/* ---- restarts: a process that goes on when a peer has died (--dp-on-failure=restart) ---- */

/* Declares that this process will call dp_rejoin when other ranks die. A process that does not declare this is
 * ended and restarted with them. Takes some microseconds, never fails, holds until dp_close, and does nothing
 * without --dp-on-failure=restart. */
void dp_enable_rejoin(dp_context* context);

/* What changed from one generation to the next. Valid until the next dp_rejoin or dp_close. */
typedef struct dp_changes {
    uint32_t previous_rank; /* of this process */
    uint32_t previous_size; /* of the world */
    const char* reason;     /* one line: "rank 5 on gpu02 was killed by signal 9 (SIGKILL) at step 1200" */
    const uint32_t*
        replaced; /* ranks of the new world with a new process, ascending; the others kept their state */
    size_t replaced_count;
} dp_changes;

/* Leaves the generation that ends, and waits until the next one begins. This process may have another rank, world
 * size, MASTER_ADDR and MASTER_PORT there: see dp_get_world and dp_get_place (the environment is not updated).
 * Collective sequence numbers start over, and the store is empty.
 *
 * Call it once nothing of the last generation runs in this process: no thread is in a call of libdp, and the
 * communicators of NCCL and Gloo are aborted or closed. It may be called before libdp has heard of the death; it
 * then waits for the news first. Until it returns DP_OK, this process must do nothing as a rank of the last
 * generation. A process that does not call within --dp-grace seconds is ended and restarted. If rank 0's node falls
 * silent, it has one second at most; if the daemon there is killed, all processes are restarted.
 *
 * *changes, which may be NULL, is set on success. DP_ERROR_ABORTED: the step is being ended. DP_ERROR_TIMEOUT: no
 * rank's death was reported, or ranks of the last generation have not ended yet; call it again to keep waiting. */
dp_status dp_rejoin(dp_context* context, dp_changes* changes, int64_t timeout_ms);

/* ---- phases: what this rank does with its time, for `dpctl top` ---- */

typedef enum dp_phase_kind {
    DP_PHASE_IDLE = 0,          /* waits for work, or does anything not named below */
    DP_PHASE_COMPUTE = 1,       /* forward, backward, the optimizer's step */
    DP_PHASE_LOAD = 2,          /* reads, prepares or uploads data */
    DP_PHASE_COMMUNICATION = 3, /* exchanges gradients, waits in barriers */
    DP_PHASE_CHECKPOINT = 4,    /* writes or reads a checkpoint */
} dp_phase_kind;

/* Puts this rank as a whole, whichever thread calls, into this phase. Meant to be called at every change,
 * even a million times a second: it reads a clock and writes a few words to a page that this node's daemon
 * reads every few seconds (--dp-slow), and when somebody asks (dpctl top). Only the first call makes system calls and tells the daemon; no time is counted
 * before it. DP_ERROR_INVALID for an unknown phase, in a fork of the rank, or if there is no memory or
 * descriptor for the page; training may continue. Not async-signal-safe. */
dp_status dp_phase(dp_context* context, dp_phase_kind phase);

/* ---- scalars: how the training goes, for `dpctl report` ---- */

/* Of one rank: the number of names that it logs, and the bytes of one. */
#define DP_MAX_SCALARS 8
#define DP_MAX_SCALAR_NAME_BYTES 31

/* Logs a number of this rank's training, as TensorBoard's add_scalar: the value that `name` ("loss",
 * "samples_per_second") has at the step that dp_at_step reported last (0: none was). May be NaN or infinite. A step
 * with --dp-record records the last value of each sample (--dp-record-interval), of the node's lowest rank that logs
 * the name (on nodes without rank 0 of every tenth sample, in a world of up to 64 ranks from the 300th sample on); of
 * the other ranks, that a value is NaN or infinite. Call it after dp_at_step, as often as you like: it writes a few
 * words to the page that dp_phase writes to, and only the first call of the two makes system calls. DP_ERROR_TOO_LARGE if
 * the name is longer than DP_MAX_SCALAR_NAME_BYTES, or would be one more than DP_MAX_SCALARS. DP_ERROR_INVALID if it
 * is NULL, empty or not of printable ASCII characters, and as dp_phase; training may continue. Not
 * async-signal-safe. */
dp_status dp_log_scalar(dp_context* context, const char* name, double value);

/* ---- collectives: every member of the group calls, in the same order ---- */

/* Waits until every member of the group has called; group == NULL means the whole world. In all collectives
 * the members' shortest timeout counts for all of them: once one member has given up, the call has failed for
 * the others, too. */
dp_status dp_barrier(dp_context* context, const dp_group* group, int64_t timeout_ms);

/* Writes a unique id and returns 0, or non-zero on failure. dp_unique_id calls it on the root only. */
typedef int (*dp_make_id)(void* user, uint8_t id[DP_UNIQUE_ID_BYTES]);

/* Gives every member the same new unique id, once every member has called. The root's make_id makes it; for
 * NCCL that is ncclGetUniqueId (dp/nccl.h does that). Each call makes a new id. */
dp_status dp_unique_id(dp_context* context, const dp_group* group, dp_make_id make_id, void* user,
                       uint8_t id[DP_UNIQUE_ID_BYTES], int64_t timeout_ms);

/* NCCL sets up a communicator fastest with one id for about this many ranks (ncclCommInitRankScalable). */
#define DP_RANKS_PER_ID 128

/* The number of ids for a communicator of that many ranks: one per DP_RANKS_PER_ID, rounded up. */
size_t dp_unique_id_count(size_t ranks);

/* Like dp_unique_id, with `count` ids (the same number on every member, at most the group's size). As many
 * roots, evenly spread over the group, make one each. Every member gets all of them in the roots' order:
 * count * DP_UNIQUE_ID_BYTES bytes at `ids`. */
dp_status dp_unique_ids(dp_context* context, const dp_group* group, size_t count, dp_make_id make_id,
                        void* user, uint8_t* ids, int64_t timeout_ms);

/* Gives the root's bytes, at most DP_MAX_VALUE_BYTES, to every member, once every member has called. `data`
 * and `size` are read on the root and ignored elsewhere. Writes the result to `out` (`capacity` in bytes)
 * and its size to *out_size; out_size may be NULL. DP_ERROR_TOO_LARGE if it does not fit, with the needed
 * size in *out_size. */
dp_status dp_broadcast(dp_context* context, const dp_group* group, const void* data, size_t size, void* out,
                       size_t capacity, size_t* out_size, int64_t timeout_ms);

/* Whether the members' values must be equal (DP_SAME) or all different (DP_DISTINCT). */
typedef enum dp_rule { DP_SAME = 0, DP_DISTINCT = 1 } dp_rule;

/* A fact about this rank. Name and value take at most 256 bytes each, the remedy 512. */
typedef struct dp_fact {
    const char* name;  /* as the error names it: "NCCL's version" */
    const char* value; /* NULL: this rank has none and is left out of the comparison */
    dp_rule rule;
    const char* remedy; /* what to do if the rule is broken: "load the same module on all nodes" */
} dp_fact;

/* A barrier that compares facts, at most 16. If one breaks its rule, every member gets DP_ERROR_INVALID and
 * an error that names the ranks, their hosts and values. Meant for what would otherwise fail later and less
 * clearly; dp_nccl_communicator does it for NCCL. */
dp_status dp_agree(dp_context* context, const dp_group* group, const dp_fact* facts, size_t count,
                   int64_t timeout_ms);

/* ---- model parallelism: how --dp-tensor and --dp-pipeline divide the world ---- */

typedef enum dp_dimension { DP_TENSOR = 0, DP_DATA = 1, DP_PIPELINE = 2 } dp_dimension;

/* This rank's place among the ranks that differ from it in one dimension only. As in Megatron-LM, tensor
 * varies fastest, then data, then pipeline. Without the options the data dimension is the whole world.
 * `group` can be passed to every call that takes one; it belongs to the context. */
typedef struct dp_place {
    uint32_t rank; /* 0 .. size-1; rank 0 is the group's root */
    uint32_t size;
    dp_group group;
} dp_place;

/* Fills *place. Fails only for an unknown dimension, with DP_ERROR_INVALID. */
dp_status dp_get_place(const dp_context* context, dp_dimension dimension, dp_place* place);

/* ---- the store: keys and values, shared by the world ---- */

/* Sets key to value, `size` bytes. */
dp_status dp_set(dp_context* context, const char* key, const void* value, size_t size, int64_t timeout_ms);

/* Waits until the key exists, then copies its value to `out` (as dp_broadcast does). With timeout_ms == 0 it
 * does not wait: DP_ERROR_NOT_FOUND if the key does not exist. */
dp_status dp_get(dp_context* context, const char* key, void* out, size_t capacity, size_t* out_size,
                 int64_t timeout_ms);

/* Waits until all keys exist. */
dp_status dp_wait(dp_context* context, const char* const* keys, size_t count, int64_t timeout_ms);

/* Adds to a counter, whose value is decimal text (a missing key counts as 0). *result is the new value. */
dp_status dp_add(dp_context* context, const char* key, int64_t amount, int64_t* result, int64_t timeout_ms);

/* Atomically sets key to `desired` if it holds `expected`, or if it is missing and expected_size == 0. Copies
 * the value that it then holds to `out` (as dp_broadcast does). */
dp_status dp_compare_set(dp_context* context, const char* key, const void* expected, size_t expected_size,
                         const void* desired, size_t desired_size, void* out, size_t capacity,
                         size_t* out_size, int64_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
