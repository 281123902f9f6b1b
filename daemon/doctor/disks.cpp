// SPDX-License-Identifier: Apache-2.0
#include "doctor/disks.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "base/errno_text.hpp"
#include "base/fd.hpp"
#include "base/text.hpp"
#include "doctor/apart.hpp"

namespace dp::doctor {
namespace {

using Clock = std::chrono::steady_clock;

// A file system that answers no sooner is taken for dead.
constexpr std::chrono::seconds kDiskPatience{4};
constexpr size_t kWritten = size_t{16} << 20, kAtOnce = size_t{1} << 20;
constexpr std::chrono::milliseconds kMostWriting{500};
constexpr uint64_t kLittle = uint64_t{1} << 30, kMuch = uint64_t{20} << 30,
                   kLittleSharedMemory = uint64_t{512} << 20;
constexpr double kLittleShare = 0.01, kSlowBandwidth = 20e6;
constexpr const char* kSharedMemory = "/dev/shm";

// A file that nobody else sees, gone when it is closed.
Fd hidden_file(const std::string& folder) {
    Fd file(open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
    if (file || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return file;
    // NFS, for one, has no files without a name.
    std::string name = folder + "/.slurm-dp-XXXXXX";
    file.reset(mkostemp(name.data(), O_CLOEXEC));
    if (file) unlink(name.c_str());
    return file;
}

// Writes a file and returns the bytes per second, or "!WHY".
std::string try_writing(const std::string& folder) {
    const Fd file = hidden_file(folder);
    if (!file) return "!" + errno_text(errno);
    const std::vector<char> bytes(kAtOnce, 'x');
    const auto begin = Clock::now();
    size_t written = 0;
    while (written < kWritten && Clock::now() - begin < kMostWriting) {
        const ssize_t size = write(file.get(), bytes.data(), bytes.size());
        if (size < 0 || fdatasync(file.get()) != 0) return "!" + errno_text(errno);
        written += static_cast<size_t>(size);
    }
    const std::chrono::duration<double> took = Clock::now() - begin;
    return fmt::format("{:.0f}", static_cast<double>(written) / took.count());
}

// The facts as one line of numbers, "!WHY" where there are none: from a process of its own.
std::string look_at(const std::string& path) {
    struct statvfs room {};
    struct statfs kind {};
    if (statvfs(path.c_str(), &room) != 0 || statfs(path.c_str(), &kind) != 0) return "!" + errno_text(errno);
    const uint64_t block = room.f_frsize;
    return fmt::format("{} {} {} {} {} {}", int{access(path.c_str(), W_OK) == 0},
                       int{kind.f_type == TMPFS_MAGIC}, room.f_blocks * block, room.f_bavail * block,
                       room.f_files, room.f_favail);
}

void measure_writing(FolderFacts& facts) {
    if (!facts.is_writable || facts.is_in_memory || facts.free <= 4 * kWritten) return;
    const auto said = apart([&] { return try_writing(facts.path); }, kDiskPatience);
    if (!said)
        facts.writing_problem = "writing 16 MiB there takes more than " +
                                words(std::chrono::duration_cast<std::chrono::milliseconds>(kDiskPatience));
    else if (said->starts_with('!'))
        facts.writing_problem = "a file cannot be written there: " + said->substr(1);
    else if (const auto speed = parse_number<uint64_t>(*said))
        facts.write_bandwidth = static_cast<double>(*speed);
}

FolderFacts facts_of(std::string what, std::string path, Depth depth) {
    FolderFacts facts;
    facts.what = std::move(what);
    facts.path = std::move(path);
    const auto seen = apart([&] { return look_at(facts.path); }, kDiskPatience);
    const auto words = split(seen ? std::string_view(*seen) : "", ' ');
    if (!seen || seen->starts_with('!') || words.size() != 6) {
        facts.problem = !seen ? seen.error().message : seen->empty() ? "it cannot be read" : seen->substr(1);
        return facts;
    }
    const auto number = [&](size_t i) { return parse_number<uint64_t>(words[i]).value_or(0); };
    facts.is_writable = number(0) != 0;
    facts.is_in_memory = number(1) != 0;
    facts.size = number(2);
    facts.free = number(3);
    facts.files = number(4);
    facts.files_free = number(5);
    if (depth != Depth::quick) measure_writing(facts);
    return facts;
}

FolderFacts lost_folder() {
    FolderFacts facts;
    facts.what = "working directory";
    facts.path = ".";
    facts.problem = "it has been removed";
    return facts;
}

Finding check_folder(const FolderFacts& facts) {
    const bool is_shared_memory = facts.path == kSharedMemory;
    const std::string path = printable(facts.path, 120);
    const std::string who = is_shared_memory
                                ? "NCCL's ranks of one node, and data loaders' workers, meet there"
                                : "programs that open a file there hang or fail";
    if (facts.problem == errno_text(ENOENT))
        return fault(facts.what, path + ": " + facts.problem, who,
                     is_shared_memory ? "mount -t tmpfs -o mode=1777 none /dev/shm" : "mkdir -p " + path);
    if (!facts.problem.empty())
        return fault(
            facts.what, path + ": " + facts.problem, who,
            fmt::format("findmnt -T {}; if its server does not answer: umount -f -l, and mount it again",
                        path));
    const std::string speed =
        facts.write_bandwidth ? fmt::format(", writes at {:.3g} MB/s", *facts.write_bandwidth / 1e6) : "";
    const std::string seen =
        fmt::format("{}: {} of {} free{}", path, size_in_words(facts.free), size_in_words(facts.size), speed);
    const std::string look = fmt::format("df -h {0}; df -i {0}", path);
    if (facts.size > 0 && facts.free == 0)
        return fault(facts.what, path + ": full",
                     "checkpoints, logs and core files fail with \"No space left on device\"", look);
    if (facts.files > 0 && facts.files_free == 0)
        return fault(facts.what, fmt::format("{}: none of {} inodes is free", path, facts.files),
                     "no file can be created, although there is room: \"No space left on device\"", look);
    if (!facts.is_writable)
        return (is_shared_memory ? fault : warning)(
            facts.what, path + ": not writable for this user",
            is_shared_memory ? "NCCL's ranks of one node, and data loaders' workers, meet there"
                             : "logs and checkpoints that a program writes there fail",
            is_shared_memory ? "chmod 1777 /dev/shm" : "cd to a folder of your own, or srun --chdir");
    if (!facts.writing_problem.empty())
        return fault(facts.what, fmt::format("{}; {}", seen, facts.writing_problem),
                     "checkpoints and logs fail there, or hold up the ranks", look + "; quota; dmesg | tail");
    if (is_shared_memory) {
        if (facts.free >= kLittleSharedMemory) return ok(facts.what, seen);
        return warning(
            facts.what, seen,
            "NCCL needs some MiB for each pair of ranks of a node, and data loaders' workers hand over "
            "batches there: \"Bus "
            "error\", \"unable to open shared memory object\"",
            "mount -o remount,size=50% /dev/shm; in a container, --shm-size=8g; rm what has been left there");
    }
    if (facts.free < kLittle || (facts.free < kMuch && static_cast<double>(facts.free) <
                                                           kLittleShare * static_cast<double>(facts.size)))
        return warning(facts.what, seen, "the next checkpoint may not fit", look);
    if (facts.files > 0 &&
        static_cast<double>(facts.files_free) < kLittleShare * static_cast<double>(facts.files))
        return warning(facts.what,
                       fmt::format("{}; {} of {} inodes free", seen, facts.files_free, facts.files),
                       "soon no file can be created, although there is room", look);
    if (facts.write_bandwidth && *facts.write_bandwidth < kSlowBandwidth)
        return warning(facts.what, seen,
                       fmt::format("a checkpoint of 10 GB would take {:.0f} minutes",
                                   10e9 / *facts.write_bandwidth / 60),
                       fmt::format("write checkpoints elsewhere; findmnt -T {}", path));
    return ok(facts.what, seen);
}

}  // namespace

std::vector<FolderFacts> read_folders(Depth depth, const std::string& given) {
    std::error_code error;
    const auto here = std::filesystem::current_path(error);
    const char* const temporary = given.empty() ? std::getenv("TMPDIR") : given.c_str();
    return {error ? lost_folder() : facts_of("working directory", here.string(), depth),
            facts_of("temporary files", temporary && *temporary ? temporary : "/tmp", depth),
            facts_of("shared memory", kSharedMemory, depth)};
}

Findings check_folders(const std::vector<FolderFacts>& folders) {
    Findings found;
    for (const FolderFacts& one : folders) found.push_back(check_folder(one));
    return found;
}

}  // namespace dp::doctor
