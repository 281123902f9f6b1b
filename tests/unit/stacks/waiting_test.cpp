// SPDX-License-Identifier: Apache-2.0
#include "stacks/waiting.hpp"

#include <gtest/gtest.h>

namespace dp::stacks {
namespace {

const std::string kTorch = "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py";
const Frame kSleep{"clock_nanosleep", "/usr/lib/x86_64-linux-gnu/libc.so.6", 0};
const Frame kMain{"<module>", "/home/alice/train.py", 90};

TEST(Waiting, WhoWaitsForOthersAndWhere) {
    const struct {
        std::vector<Frame> frames;
        bool waits;
        const char* where;
    } cases[] = {
        {{{"poll", "libc.so.6", 0},
          {"_wait", kTorch, 9},
          {"all_reduce", kTorch, 1436},
          {"wrapper", "/x/c10d_logger.py", 47},
          kMain},
         true,
         "all_reduce (distributed_c10d.py:1436)"},
        {{{"_store_based_barrier", kTorch, 250}, {"init_process_group", kTorch, 800}, kMain},
         true,
         "init_process_group (distributed_c10d.py:800)"},
        {{{"epoll_wait", "libc.so.6", 0},
          {"opal_progress", "libopen-pal.so.40", 0},
          {"MPI_Allreduce", "/usr/lib/libmpi.so.40", 0},
          {"main", "train.c", 7}},
         true,
         "MPI_Allreduce (libmpi.so.40)"},
        {{{"sched_yield", "libc.so.6", 0},
          {"cuStreamSynchronize", "/usr/lib/libcuda.so.1", 0},
          {"train_step", "/home/alice/train.py", 50},
          kMain},
         true,
         "cuStreamSynchronize (libcuda.so.1)"},
        {{{"futex_wait", "libc.so.6", 0}, {"c10d::TCPStore::wait(std::vector)", "libtorch_cpu.so", 0}, kMain},
         true,
         "c10d::TCPStore::wait(std::vector) (libtorch_cpu.so)"},
        {{{"barrier", "/venv/lib/python3.11/site-packages/slurm_dp/_api.py", 12}, kMain},
         true,
         "barrier (_api.py:12)"},
        {{kSleep, {"load_batch", "/home/alice/train.py", 88}, kMain},
         false,
         "load_batch (train.py:88), in clock_nanosleep"},
        {{{"Queue.get", "/usr/lib/python3.11/queue.py", 171},
          {"load_batch", "/home/alice/train.py", 88},
          kMain},
         false,
         "load_batch (train.py:88), in Queue.get"},
        // A launcher's own frames, and a module that calls the user's code, say nothing of a wait.
        {{kSleep,
          {"forward", "/home/alice/model.py", 5},
          {"forward", "/x/torch/distributed/fsdp/api.py", 800},
          kMain},
         false,
         "forward (model.py:5), in clock_nanosleep"},
        {{kSleep, {"batch", "/home/alice/train.py", 5}, {"run", "/venv/slurm_dp/torch.py", 9}, kMain},
         false,
         "batch (train.py:5), in clock_nanosleep"},
        {{{"all_reduce", "/home/alice/train.py", 4}, kMain}, false, "all_reduce (train.py:4)"},
        {{kSleep, {"main", "/home/alice/program", 0}}, false, "clock_nanosleep (libc.so.6)"},
        // An atomic's wait says nothing of what for.
        {{{"syscall", "libc.so.6", 0},
          {"void std::__atomic_wait_address_v<bool, std::__atomic_base<bool>::wait>(bool const*)", "trainer",
           0},
          {"dp::trainer::Checkpointer::finish", "trainer", 0},
          {"main", "trainer", 0}},
         false,
         "dp::trainer::Checkpointer::finish (trainer), in syscall"},
        {{{"syscall", "libc.so.6", 0}}, false, "syscall (libc.so.6)"},
        // A template's name begins with what it returns.
        {{{"syscall", "libc.so.6", 0},
          {"std::vector<float, std::allocator<float> > load_batch<float>(int)", "program", 0},
          {"main", "program", 0}},
         false,
         "std::vector<float, std::allocator<float> > load_batch<float>(int) (program), in syscall"},
        {{{"syscall", "libc.so.6", 0},
          {"(anonymous namespace)::load(std::string const&)", "program", 0},
          {"main", "program", 0}},
         false,
         "(anonymous namespace)::load(std::string const&) (program), in syscall"},
        {{}, false, "no Python code: it begins, or ends"},
    };
    for (const auto& one : cases) {
        const Doing doing = doing_of({1, one.frames, ""});
        EXPECT_EQ(doing.waits_for_others, one.waits) << one.where;
        EXPECT_EQ(doing.where, one.where);
    }
}

TEST(Waiting, WhoWaitsForAThreadOfItsOwn) {
    const Frame futex{"futex_wait", "libc.so.6", 0}, train{"train", "/home/alice/train.py", 7};
    const struct {
        std::vector<Frame> frames;
        bool waits;
    } cases[] = {
        {{futex, {"Thread.join", "/usr/lib/python3.11/threading.py", 1112}, train}, true},
        {{futex, {"result", "/usr/lib/python3.9/concurrent/futures/_base.py", 440}, train}, true},
        {{{"__pthread_clockjoin_ex", "libc.so.6", 0}, {"main", "program.c", 7}}, true},
        {{futex, {"Queue.get", "/usr/lib/python3.11/queue.py", 171}, train}, false},
        {{train, {"Thread.join", "/usr/lib/python3.11/threading.py", 1112}}, false},
    };
    for (const auto& one : cases) EXPECT_EQ(doing_of({1, one.frames, ""}).waits_for_own_thread, one.waits);
}

TEST(Waiting, LibrariesAndTheTrainersOwnBarrierWait) {
    for (const char* name : {"dp_barrier", "dp::trainer::NodeBarrier::wait(std::chrono::seconds)",
                             "dp::trainer::NodeMessages::wait(std::function<bool ()> const&)",
                             "dp::trainer::Background::finish", "ncclAllReduce", "gloo::barrier"})
        EXPECT_TRUE(waits_for_others({name, "trainer", 0})) << name;
    EXPECT_FALSE(waits_for_others({"dp::trainer::Background::run", "trainer", 0}));
}

TEST(Waiting, NotEveryFunctionOfMpiWaits) {
    for (const char* name : {"MPI_Allreduce", "PMPI_Allreduce", "MPI_Recv", "MPI_Waitall", "MPI_Init",
                             "MPI_Finalize", "MPI_Barrier", "MPI_Comm_split", "MPI_Win_fence", "PMPI_Probe"})
        EXPECT_TRUE(waits_for_others({name, "libmpi.so.40", 0})) << name;
    for (const char* name :
         {"MPI_Wtime", "PMPI_Wtime", "MPI_Test", "MPI_Testall", "MPI_Iprobe", "MPI_Comm_rank",
          "MPI_Finalized", "MPI_Get_count", "MPI_Pack", "MPI_Type_commit", "mpi_solver", "PMPI"})
        EXPECT_FALSE(waits_for_others({name, "libmpi.so.40", 0})) << name;
}

TEST(Waiting, EqualStacksHaveEqualPlaces) {
    const auto place = [](std::vector<Frame> frames) { return doing_of({1, std::move(frames), ""}).place; };
    EXPECT_EQ(place({kSleep, kMain}), place({kMain})) << "where a library waits differs from look to look";
    EXPECT_NE(place({kMain}), place({{"load", "/home/alice/train.py", 3}, kMain}));
    EXPECT_NE(place({kSleep}), place({{"poll", "libc.so.6", 0}})) << "without Python it is all there is";
}

TEST(Waiting, PythonIsAloneWhereItCallsNothing) {
    EXPECT_TRUE(doing_of({1, {kMain}, "", true}).is_python_alone);
    EXPECT_FALSE(doing_of({1, {kSleep, kMain}, "", true}).is_python_alone);
    EXPECT_FALSE(doing_of({1, {kMain}, "", false}).is_python_alone) << "what it calls is not known";
}

}  // namespace
}  // namespace dp::stacks
