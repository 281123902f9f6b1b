/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libdp, the C face: what a rank asks of the world it was started in.
 *
 * A rank is a task of a Slurm step started with --dp-world (or of `dpctl launch`). Everything it needs stands
 * in its environment (DP_SOCKET, DP_RANK, ...); libdp talks to its node's daemon over an abstract unix socket
 * and has no secret and no network of its own. C++ programs may prefer dp/dp.hpp.
 *
 * Threads:   every function may be called from any thread; one context may be shared by all threads of a
 * process. Ownership: a context belongs to who opened it and ends with dp_close. Strings returned as `const
 * char *` belong to the context (or, for dp_last_error, to the calling thread) and must not be freed. Time:
 * timeouts are milliseconds; DP_TIMEOUT_DEFAULT means the step's --dp-timeout. No call waits longer; time in
 * which the step is stopped (scontrol suspend) does not count. Errors: a dp_status; dp_last_error() then
 * holds one line that says what was tried, who is missing, what to do.
 *
 * Since:     0.1
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
    DP_ERROR_NO_STEP = 1,   /* not inside a step of slurm-dp: DP_SOCKET is missing */
    DP_ERROR_INVALID = 2,   /* an argument or the environment makes no sense */
    DP_ERROR_TIMEOUT = 3,   /* the deadline passed; the error names the missing ranks and their hosts */
    DP_ERROR_LOST = 4,      /* the daemon of this node is gone, or does not answer */
    DP_ERROR_ABORTED = 5,   /* the step is being ended; the error says which rank was the cause */
    DP_ERROR_NOT_FOUND = 6, /* no such key */
    DP_ERROR_TOO_LARGE = 7, /* a value over the limit below, or over the buffer given */
    DP_ERROR_BACKEND = 8,   /* NCCL or Gloo refused; the error has its words */
} dp_status;

/* Limits of the store, in bytes. */
#define DP_MAX_KEY_BYTES 8192
#define DP_MAX_VALUE_BYTES 1048576

typedef struct dp_context dp_context;

/* Where this rank stands. Strings live as long as the context. */
typedef struct dp_world {
    uint32_t rank;           /* 0 .. size-1 */
    uint32_t size;           /* ranks in the world */
    uint32_t local_rank;     /* 0 .. local_size-1 on this node */
    uint32_t local_size;     /* ranks on this node */
    uint32_t node_rank;      /* 0 .. nodes-1 */
    uint32_t nodes;          /* nodes in the world */
    uint32_t generation;     /* 0; one more after each restart of the job */
    const char* master_addr; /* numeric address of rank 0's node */
    uint16_t master_port;    /* a port held free there for whoever binds it */
    const char* node_addr;   /* numeric address of this node, as the other nodes reach it */
} dp_world;

/* Ranks that act together. `members` are world ranks, ascending and without repetition; members == NULL means
 * the whole world. The first member is the root. `name` tells groups with equal members apart; at most 255
 * bytes. */
typedef struct dp_group {
    const char* name;
    const uint32_t* members;
    size_t count;
} dp_group;

/* True (1) where this process is a rank of a step of slurm-dp, that is, where dp_open can work. */
int dp_in_step(void);

/* Opens the context of this rank and says hello to the node's daemon. */
dp_status dp_open(dp_context** context);

/* Says goodbye and frees the context. NULL is allowed. Pending calls of other threads end with DP_ERROR_LOST.
 */
void dp_close(dp_context* context);

/* The facts of the world; valid until dp_close. */
const dp_world* dp_get_world(const dp_context* context);

/* One line about the last error of the calling thread; "" if there was none. Valid until the thread's next
 * call. */
const char* dp_last_error(void);

/* The meaning of a status in two or three words. */
const char* dp_status_name(dp_status status);

/* ---- deaths: told at once, whatever this rank is doing ---- */

typedef enum dp_event_kind {
    DP_EVENT_DEATHS = 0, /* ranks have died and the others go on (--dp-on-failure=report) */
    DP_EVENT_ENDING = 1, /* the step is being ended: every pending and later call fails with DP_ERROR_ABORTED,
                            and in a moment this process gets SIGTERM */
    DP_EVENT_LOST = 2,   /* the daemon of this node is gone: every call fails with DP_ERROR_LOST, and nobody
                            watches this rank any more */
} dp_event_kind;

/* What happened. All of it is valid during the call-back only. */
typedef struct dp_event {
    dp_event_kind kind;
    const char* reason;    /* one line: "rank 5 on gpu02 was killed by signal 11 (SIGSEGV)" */
    const uint32_t* ranks; /* the dead, ascending; none where no rank's death is the cause */
    size_t count;
} dp_event;

/* Runs on a thread of libdp's, one event at a time; what happened before dp_on_event is told inside of it, on
 * the calling thread. It should return soon. It must not call dp_close; calls that wait fail with
 * DP_ERROR_INVALID. */
typedef void (*dp_event_callback)(void* user, const dp_event* event);

/* From now on the call-back hears of every event. *watch (which may be NULL) is for dp_forget_event. */
dp_status dp_on_event(dp_context* context, dp_event_callback callback, void* user, uint64_t* watch);

/* The call-back runs no more once this has returned (where it is called from inside a call-back: after that
 * one). It waits for any call-back that runs: hold no lock that a call-back of yours takes. dp_close forgets
 * all. */
void dp_forget_event(dp_context* context, uint64_t watch);

/* Tells how far this rank's training is, so that the news of its death says so: "... was killed by signal 11
 * (SIGSEGV) at step 1200". Costs some microseconds, waits for nothing and never fails; meant for every step.
 * Told at most every 10 ms, so of very short steps the news may name an earlier one. */
void dp_at_step(dp_context* context, uint64_t step);

/* ---- phases: what this rank does with its time, for `dpctl top` ---- */

typedef enum dp_phase_kind {
    DP_PHASE_IDLE = 0,          /* waits for work, or for nothing that is named below */
    DP_PHASE_COMPUTE = 1,       /* forward, backward, the optimizer's step */
    DP_PHASE_LOAD = 2,          /* reads, prepares or uploads data */
    DP_PHASE_COMMUNICATION = 3, /* with other ranks: gradients, barriers */
    DP_PHASE_CHECKPOINT = 4,    /* writes or reads a checkpoint */
} dp_phase_kind;

/* From now on this rank, as a whole and whichever of its threads calls, is in this phase. Meant to be called
 * at every change, also a million times a second: a clock and a few stores to a page that this node's daemon
 * reads when somebody asks. Only the first call takes system calls and tells the daemon. Before it nothing is
 * known of the rank, and no time is counted. DP_ERROR_INVALID for an unknown phase, in a fork of the rank, or
 * where there is no memory or descriptor for the page; training may go on all the same. Not for signal
 * handlers. */
dp_status dp_phase(dp_context* context, dp_phase_kind phase);

/* ---- groups: every member calls, in the same order ---- */

/* Waits until every member of the group has called. group == NULL means the whole world. The shortest
 * timeout of the members counts for all of them, here and in the two calls below: a meeting without one
 * member has failed for the others, too. */
dp_status dp_barrier(dp_context* context, const dp_group* group, int64_t timeout_ms);

/* Writes a unique id; returns 0, or another number for failure. Called on the root only, by dp_unique_id. */
typedef int (*dp_make_id)(void* user, uint8_t id[DP_UNIQUE_ID_BYTES]);

/* The same fresh unique id for every member, once every member has called: the root's make_id makes it, the
 * broker brings it. make_id is ncclGetUniqueId for NCCL (dp/nccl.h does that). Each call yields a new id. */
dp_status dp_unique_id(dp_context* context, const dp_group* group, dp_make_id make_id, void* user,
                       uint8_t id[DP_UNIQUE_ID_BYTES], int64_t timeout_ms);

/* NCCL sets up a communicator fastest with one id for about this many ranks (ncclCommInitRankScalable). */
#define DP_RANKS_PER_ID 128

/* How many ids a communicator of so many ranks should have: one for each DP_RANKS_PER_ID begun. */
size_t dp_unique_id_count(size_t ranks);

/* Like dp_unique_id, with `count` ids (the same number on every member, at most the group's size): they are
 * made on as many roots, evenly spread over the group, and each member gets all of them in the roots' order:
 * count * DP_UNIQUE_ID_BYTES bytes at ids. */
dp_status dp_unique_ids(dp_context* context, const dp_group* group, size_t count, dp_make_id make_id,
                        void* user, uint8_t* ids, int64_t timeout_ms);

/* The root's bytes for every member, once every member has called. On the root, data/size are read; on the
 * others they are ignored. The result is written to `out` (capacity in bytes) and its size to *out_size;
 * DP_ERROR_TOO_LARGE where it does not fit (*out_size then says what it needs). At most DP_MAX_VALUE_BYTES.
 */
dp_status dp_broadcast(dp_context* context, const dp_group* group, const void* data, size_t size, void* out,
                       size_t capacity, size_t* out_size, int64_t timeout_ms);

/* What the members of a group must have in common (DP_SAME), or each for itself (DP_DISTINCT). */
typedef enum dp_rule { DP_SAME = 0, DP_DISTINCT = 1 } dp_rule;

/* One line's worth about this rank; at most 256 bytes each, the remedy 512. */
typedef struct dp_fact {
    const char* name;  /* as it stands in the error: "NCCL's version" */
    const char* value; /* NULL: this rank has none, and is left out of the comparison */
    dp_rule rule;
    const char* remedy; /* what to do where the ranks do not fit: "load the same module on all nodes" */
} dp_fact;

/* A barrier that compares: where the members' facts do not fit together every member gets DP_ERROR_INVALID
 * and an error that names the ranks, their hosts and values. At most 16 facts. Meant for what would fail
 * later and less clearly; dp_nccl_communicator does it for NCCL. */
dp_status dp_agree(dp_context* context, const dp_group* group, const dp_fact* facts, size_t count,
                   int64_t timeout_ms);

/* ---- model parallelism: how --dp-tensor and --dp-pipeline divide the world ---- */

typedef enum dp_dimension { DP_TENSOR = 0, DP_DATA = 1, DP_PIPELINE = 2 } dp_dimension;

/* This rank's place among the ranks that differ from it in one dimension only, in Megatron-LM's order: tensor
 * varies fastest, then data, then pipeline. Without the options the data dimension is the whole world.
 * `group` may be given to every call that takes one; it belongs to the context. */
typedef struct dp_place {
    uint32_t rank; /* 0 .. size-1; rank 0 is the group's root */
    uint32_t size;
    dp_group group;
} dp_place;

/* Fills *place. Fails for an unknown dimension only. */
dp_status dp_get_place(const dp_context* context, dp_dimension dimension, dp_place* place);

/* ---- the store: keys and values of bytes, shared by the world ---- */

/* Sets key to value. */
dp_status dp_set(dp_context* context, const char* key, const void* value, size_t size, int64_t timeout_ms);

/* Waits until the key is there, then copies its value (as dp_broadcast does). timeout_ms == 0:
 * DP_ERROR_NOT_FOUND at once where it is not there. */
dp_status dp_get(dp_context* context, const char* key, void* out, size_t capacity, size_t* out_size,
                 int64_t timeout_ms);

/* Waits until all the keys are there. */
dp_status dp_wait(dp_context* context, const char* const* keys, size_t count, int64_t timeout_ms);

/* Adds to a counter (a missing key counts as 0; the value is decimal text) and yields the new value. */
dp_status dp_add(dp_context* context, const char* key, int64_t amount, int64_t* result, int64_t timeout_ms);

/* Sets key to `desired` where it holds `expected` (or is missing and expected_size == 0), in one step; yields
 * the value that it holds afterwards (as dp_broadcast does). */
dp_status dp_compare_set(dp_context* context, const char* key, const void* expected, size_t expected_size,
                         const void* desired, size_t desired_size, void* out, size_t capacity,
                         size_t* out_size, int64_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
