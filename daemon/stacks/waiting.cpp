// SPDX-License-Identifier: Apache-2.0
#include "stacks/waiting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

#include "stacks/python_files.hpp"

namespace dp::stacks {
namespace {

// Functions of libraries by which ranks wait for each other, or for a GPU on which such a collective runs: how their names begin.
constexpr std::array<std::string_view, 27> kWaits = {"nccl",
                                                     "pnccl",
                                                     "rccl",
                                                     "MPI_",
                                                     "PMPI_",
                                                     "mpi_",
                                                     "c10d::",
                                                     "gloo::",
                                                     "dp_",
                                                     "ucp_",
                                                     "shmem_",
                                                     "nvshmem_",
                                                     "horovod::",
                                                     "xla::",
                                                     "cuStreamSynchronize",
                                                     "cuEventSynchronize",
                                                     "cuCtxSynchronize",
                                                     "cudaStreamSynchronize",
                                                     "cudaEventSynchronize",
                                                     "cudaDeviceSynchronize",
                                                     "cudaMemcpy",
                                                     "cuMemcpyDtoH",
                                                     "hipStreamSynchronize",
                                                     "hipEventSynchronize",
                                                     "hipDeviceSynchronize",
                                                     "hipMemcpy",
                                                     "zeEventHostSynchronize"};
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
constexpr std::string_view kOwnFolder = "/slurm_dp/";

bool begins_with_one(std::string_view name, const auto& beginnings) {
    return std::ranges::any_of(beginnings, [&](std::string_view one) { return name.starts_with(one); });
}

bool is_python(const Frame& frame) {
    return frame.file.ends_with(".py") || frame.file.starts_with('<');
}

bool waits_for_others(const Frame& frame) {
    if (!is_python(frame)) return begins_with_one(frame.function, kWaits);
    std::string_view name = frame.function;
    name.remove_prefix(std::min(name.find_first_not_of('_'), name.size()));
    if (frame.file.ends_with(kTorchFile))
        return name == "store_based_barrier" || begins_with_one(name, kTorchWaits);
    return frame.file.find(kOwnFolder) != std::string::npos;
}

std::string in_words(const Frame& frame) {
    const std::string_view file = std::string_view(frame.file).substr(frame.file.rfind('/') + 1);
    return frame.line == 0 ? fmt::format("{} ({})", frame.function, file)
                           : fmt::format("{} ({}:{})", frame.function, file, frame.line);
}

}  // namespace

Doing doing_of(const ThreadStack& thread) {
    Doing doing;
    const auto& frames = thread.frames;
    doing.is_python_alone = frames.empty() || is_python(frames.front());
    std::string all;
    for (const Frame& frame : frames)
        all += fmt::format("{}\n{}\n{}\n", frame.function, frame.file, frame.line);
    doing.place = std::hash<std::string>()(all);
    if (frames.empty()) {
        doing.where = thread.incomplete.empty() ? "no Python code: it begins, or ends" : thread.incomplete;
        return doing;
    }
    // The call of the program's own code, which is the outermost of those.
    const auto wait = std::find_if(frames.rbegin(), frames.rend(), waits_for_others);
    if (wait != frames.rend()) {
        doing.waits_for_others = true;
        doing.where = in_words(*wait);
        return doing;
    }
    const auto first_of = [&](PythonFile kind) {
        return std::ranges::find_if(frames, [&](const Frame& one) {
            return is_python(one) && kind_of_python_file(one.file) == kind;
        });
    };
    auto own = first_of(PythonFile::user);
    if (own == frames.end()) own = first_of(PythonFile::package);
    if (own == frames.end()) own = frames.begin();
    doing.where = in_words(*own);
    if (own != frames.begin()) doing.where += ", in " + frames.front().function;
    return doing;
}

}  // namespace dp::stacks
