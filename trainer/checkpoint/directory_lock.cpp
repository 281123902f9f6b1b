// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/directory_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "base/host_name.hpp"
#include "base/text.hpp"
#include "trainer/base/durable.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

// "job 12.0, ": the step. "" outside Slurm.
std::string step_in_words() {
    const char* job = std::getenv("SLURM_JOB_ID");
    const char* step = std::getenv("SLURM_STEP_ID");
    return job && step ? fmt::format("job {}.{}, ", job, step) : "";
}

// "job 12.0, process 4711 on node01, 9f3c05a1…": for people up to the last comma, unique after it.
std::string new_words() {
    std::random_device random;
    return fmt::format("{}process {} on {}, {:08x}{:08x}\n", step_in_words(), getpid(), host_name(), random(),
                       random());
}

std::string words_in(const fs::path& directory) {
    std::ifstream file(directory / kClaimFile, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

bool is_of_this_step(const std::string& words) {
    const std::string step = step_in_words();
    return !step.empty() && words.starts_with(step);
}

// Untrusted: anybody who may write there could have written this.
std::string for_people(const std::string& words) {
    const std::string text = printable(words.substr(0, words.rfind(',')));
    return text.empty() ? "" : fmt::format(" ({})", text);
}

}  // namespace

Result<std::unique_ptr<DirectoryLock>> DirectoryLock::make(const fs::path& directory, bool succeeds) {
    MadeDirectories made;
    if (const std::error_code error = made.make(directory))
        return fail(Fault::usage, "--checkpoint-dir {}: cannot make it: {}", directory.string(),
                    error.message());
    Fd opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const bool is_held = opened && ::flock(opened.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (is_held && !(succeeds && is_of_this_step(words_in(directory))))
        return fail(Fault::usage,
                    "--checkpoint-dir {}: another training is using it; wait until that ends, or give "
                    "another directory",
                    directory.string());
    std::string words = new_words();
    if (const auto written = write_durably(directory / kClaimFile, words); !written) {
        std::error_code ignored;
        fs::remove(directory / kClaimFile, ignored);
        return fail(Fault::usage, "--checkpoint-dir {}: {}", directory.string(), written.error().message);
    }
    return std::unique_ptr<DirectoryLock>(
        new DirectoryLock(directory, std::move(words), std::move(opened), std::move(made)));
}

DirectoryLock::~DirectoryLock() {
    std::error_code ignored;
    if (check())
        fs::remove(directory_ / kClaimFile, ignored);
    else
        made_.keep();  // for the other training
}

Result<void> DirectoryLock::check() const {
    std::ifstream file(directory_ / kClaimFile, std::ios::binary);
    std::error_code ignored;
    // A directory that is gone or unreadable belongs to no other training; saving itself says what is wrong.
    if (!file && (errno != ENOENT || !fs::exists(directory_, ignored))) return {};
    const std::string now{std::istreambuf_iterator<char>(file), {}};
    if (now == words_) return {};
    return fail(Fault::usage,
                "--checkpoint-dir {}: another training{} has taken the directory over; this one ends",
                directory_.string(), for_people(now));
}

}  // namespace dp::trainer
