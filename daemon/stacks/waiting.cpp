// SPDX-License-Identifier: Apache-2.0
#include "stacks/waiting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <string_view>

#include "stacks/python_files.hpp"

namespace dp::stacks {
namespace {

// Functions of libraries by which ranks wait for each other, or for a GPU on which such a collective runs: how their names begin.
constexpr std::array<std::string_view, 30> kWaits = {"nccl",
                                                     "pnccl",
                                                     "c10d::",
                                                     "gloo::",
                                                     "shmem_",
                                                     "nvshmem_",
                                                     "horovod::",
                                                     "dp_agree",
                                                     "dp_barrier",
                                                     "dp_broadcast",
                                                     "dp_get",
                                                     "dp_nccl_communicator",
                                                     "dp_open",
                                                     "dp_rejoin",
                                                     "dp_unique_id",
                                                     "dp_wait",
                                                     "dp::trainer::Background::finish",
                                                     "dp::trainer::NodeBarrier::wait",
                                                     "dp::trainer::NodeMessages::wait",
                                                     "cuCtxSynchronize",
                                                     "cuEventSynchronize",
                                                     "cuMemcpyDtoH",
                                                     "cuStreamSynchronize",
                                                     "cudaDeviceSynchronize",
                                                     "cudaEventSynchronize",
                                                     "cudaMemcpy",
                                                     "cudaStreamSynchronize",
                                                     "hipDeviceSynchronize",
                                                     "hipEventSynchronize",
                                                     "hipStreamSynchronize"};
// Of MPI's functions, which of all begin so, those that wait for nobody.
constexpr std::array<std::string_view, 22> kLocalOfMpi = {
    "Aint",  "Attr",  "Comm_get", "Comm_rank", "Comm_size", "Comm_set", "Error", "Errhandler",
    "Final", "Get_",  "Group_",   "Improbe",   "Info_",     "Iprobe",   "Is_th", "Op_",
    "Pack",  "Query", "Status_",  "Test",      "Type_",     "Wtime"};

bool is_wait_of_mpi(std::string_view name) {
    if (name.starts_with('P')) name.remove_prefix(1);
    if (!name.starts_with("MPI_")) return false;
    name.remove_prefix(4);
    if (name.starts_with("Finalize") && name != "Finalized") return true;
    return std::ranges::none_of(kLocalOfMpi, [&](std::string_view local) { return name.starts_with(local); });
}

// And of Python, by file and by how the functions' names begin, after underscores.
constexpr std::string_view kTorchFile = "/distributed_c10d.py";
constexpr std::array<std::string_view, 15> kTorchWaits = {"all_gather",
                                                          "all_reduce",
                                                          "all_to_all",
                                                          "barrier",
                                                          "batch_isend_irecv",
                                                          "broadcast",
                                                          "gather",
                                                          "init_process_group",
                                                          "irecv",
                                                          "monitored_barrier",
                                                          "new_group",
                                                          "recv",
                                                          "reduce",
                                                          "scatter",
                                                          "send"};
constexpr std::string_view kOwnFolder = "-packages/slurm_dp/";

// By which a thread waits for another one of its process: of any library, and of Python by file.
constexpr std::array<std::string_view, 3> kJoins = {"pthread_join", "__pthread_clockjoin",
                                                    "std::thread::join"};
constexpr std::string_view kThreads = "/threading.py", kFutures = "/concurrent/futures/_base.py";

bool begins_with_one(std::string_view name, const auto& beginnings) {
    return std::ranges::any_of(beginnings, [&](std::string_view one) { return name.starts_with(one); });
}

bool is_python(const Frame& frame) {
    return frame.file.ends_with(".py") || frame.file.starts_with('<');
}

bool waits_for_own_thread(const Frame& frame) {
    if (!is_python(frame)) return begins_with_one(frame.function, kJoins);
    return (frame.file.ends_with(kThreads) && frame.function.ends_with("join")) ||
           (frame.file.ends_with(kFutures) && frame.function.ends_with("result"));
}

// A frame of the C++ library, or of the system call below it: it does not say what is waited for.
bool says_nothing(const Frame& frame) {
    // Without what is in <>, and up to its parameters: a template's name begins with what it returns.
    std::string name;
    for (int depth = 0; const char c : frame.function) {
        if (depth == 0 && c == '(') break;
        if (c == '<') ++depth;
        if (depth == 0) name += c;
        if (c == '>') --depth;
    }
    return name == "syscall" || name.substr(name.rfind(' ') + 1).starts_with("std::");
}

std::string in_words(const Frame& frame) {
    const std::string_view file = std::string_view(frame.file).substr(frame.file.rfind('/') + 1);
    return frame.line == 0 ? fmt::format("{} ({})", frame.function, file)
                           : fmt::format("{} ({}:{})", frame.function, file, frame.line);
}

}  // namespace

bool waits_for_others(const Frame& frame) {
    if (!is_python(frame)) return begins_with_one(frame.function, kWaits) || is_wait_of_mpi(frame.function);
    std::string_view name = frame.function;
    name.remove_prefix(std::min(name.find_first_not_of('_'), name.size()));
    if (frame.file.ends_with(kTorchFile))
        return name == "store_based_barrier" || begins_with_one(name, kTorchWaits);
    return frame.file.find(kOwnFolder) != std::string::npos;
}

Doing doing_of(const ThreadStack& thread) {
    Doing doing;
    const auto& frames = thread.frames;
    doing.is_python_alone = thread.has_native && !frames.empty() && is_python(frames.front());
    const bool has_python = std::ranges::any_of(frames, is_python);
    std::string all;
    for (const Frame& frame : frames)
        if (is_python(frame) == has_python)
            all += fmt::format("{}\n{}\n{}\n", frame.function, frame.file, frame.line);
    doing.place = std::hash<std::string>()(all);
    if (frames.empty()) {
        doing.where = thread.incomplete.empty() ? "no Python code: it begins, or ends" : thread.incomplete;
        return doing;
    }
    const auto first_of = [&](PythonFile kind) {
        return std::ranges::find_if(frames, [&](const Frame& one) {
            return is_python(one) && kind_of_python_file(one.file) == kind;
        });
    };
    auto own = first_of(PythonFile::user);
    doing.waits_for_own_thread = std::any_of(frames.begin(), own, waits_for_own_thread);
    // The outermost such call that the user's code has made.
    const auto wait = std::find_if(std::make_reverse_iterator(own), frames.rend(), waits_for_others);
    if (wait != frames.rend()) {
        doing.waits_for_others = true;
        // Ranks of one collective are at different lines of it: one may be the root.
        std::string outside;
        for (auto frame = wait;; --frame) {
            const bool is_wait = frame == wait;
            outside += fmt::format("{}\n{}\n{}\n", frame->function, frame->file, is_wait ? 0 : frame->line);
            if (frame == frames.rbegin()) break;
        }
        doing.place = std::hash<std::string>()(outside);
        doing.where = in_words(*wait);
        return doing;
    }
    if (own == frames.end()) own = first_of(PythonFile::package);
    if (own == frames.end()) own = std::ranges::find_if_not(frames, says_nothing);
    if (own == frames.end()) own = frames.begin();
    doing.where = in_words(*own);
    if (own != frames.begin()) doing.where += ", in " + frames.front().function;
    return doing;
}

}  // namespace dp::stacks
