// SPDX-License-Identifier: Apache-2.0
#include "dpctl/collected_records.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/errno_text.hpp"
#include "base/text.hpp"

namespace dp {
namespace {

tl::unexpected<Failure> cannot(const std::string& path) {
    return fail(printable(path) + ": " + errno_text(errno));
}

// nullopt: it cannot be read.
std::optional<size_t> read_all(int fd, char* out, size_t size) {
    size_t done = 0;
    for (ssize_t n = 1; done < size && n != 0;) {
        n = read(fd, out + done, size - done);
        if (n < 0 && errno != EINTR) return std::nullopt;
        done += n > 0 ? static_cast<size_t>(n) : 0;
    }
    return done;
}

// A record only grows, so of two of one name the longer one begins with the shorter one, or somebody has changed it.
enum class Longer { here, come, neither };
Longer longer_of(const std::string& here, const std::string& come) {
    const Fd one(open(here.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    const Fd other(open(come.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    struct stat what {};
    if (!one || !other || fstat(one.get(), &what) != 0 || !S_ISREG(what.st_mode)) return Longer::neither;
    std::array<char, 65536> left{}, right{};
    for (;;) {
        const auto l = read_all(one.get(), left.data(), left.size());
        const auto r = read_all(other.get(), right.data(), right.size());
        if (!l || !r) return Longer::neither;
        const size_t both = std::min(*l, *r);
        if (!std::equal(left.begin(), left.begin() + static_cast<ptrdiff_t>(both), right.begin()))
            return Longer::neither;
        if (both < left.size()) return *l < *r ? Longer::come : Longer::here;
    }
}

}  // namespace

Try<std::unique_ptr<CollectedRecords>> CollectedRecords::into(const std::string& directory, uint32_t job,
                                                              const std::vector<std::string>& nodes) {
    const bool is_new = mkdir(directory.c_str(), 0777) == 0;
    if (!is_new && errno != EEXIST) return cannot(directory);
    std::string temporary = directory + "/.collect-XXXXXX";
    if (!mkdtemp(temporary.data())) return cannot(directory);
    return std::unique_ptr<CollectedRecords>(new CollectedRecords(directory, is_new, temporary, job, nodes));
}

CollectedRecords::CollectedRecords(std::string directory, bool is_new, std::string temporary, uint32_t job,
                                   const std::vector<std::string>& nodes)
    : directory_(std::move(directory)),
      is_new_(is_new),
      temporary_(std::move(temporary)),
      job_(job),
      order_(nodes) {
    for (const std::string& node : nodes) nodes_[node];
}

CollectedRecords::~CollectedRecords() {
    std::error_code ignored;
    std::filesystem::remove_all(temporary_, ignored);
    if (records_ == 0 && is_new_) rmdir(directory_.c_str());
}

Try<bool> CollectedRecords::take(const RecordLine& line) {
    const auto found = nodes_.find(line.node);
    if (found == nodes_.end()) return false;
    auto& [name, node] = *found;
    switch (line.kind) {
        case RecordLine::Kind::file:
            if (const auto file = read_sent_file(line.text))
                DP_TRY(begin(name, node, *file));
            else
                node.problems.insert("sent a line that means nothing");
            break;
        case RecordLine::Kind::data:
            DP_TRY(add(node, line.text));
            break;
        case RecordLine::Kind::problem:
            drop(node);
            node.problems.insert(printable(line.text));
            break;
        case RecordLine::Kind::end:
            note_part(node);
            node.is_done = true;
            break;
    }
    return true;
}

Try<void> CollectedRecords::begin(const std::string& name, Node& node, const SentFile& file) {
    note_part(node);
    drop(node);
    if (!is_record_of(file.name, job_, name)) {
        node.problems.insert("sent " + printable(file.name, 80) +
                             ", which is no record of this job and node");
        return {};
    }
    node.descriptor.reset(
        open(temporary(file.name).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (!node.descriptor) return cannot(directory_);
    node.file = file.name;
    node.missing = file.size;
    return file.size == 0 ? finish(node) : Try<void>();
}

Try<void> CollectedRecords::add(Node& node, std::string_view bytes) {
    if (node.file.empty()) return {};  // of one that is not wanted
    if (bytes.size() > node.missing) {
        node.problems.insert("sent more of " + node.file + " than there is");
        drop(node);
        return {};
    }
    while (!bytes.empty()) {
        const ssize_t size = write(node.descriptor.get(), bytes.data(), bytes.size());
        if (size < 0 && errno == EINTR) continue;
        if (size < 0) return cannot(directory_);
        bytes.remove_prefix(static_cast<size_t>(size));
        node.missing -= static_cast<uint64_t>(size);
    }
    return node.missing == 0 ? finish(node) : Try<void>();
}

Try<void> CollectedRecords::finish(Node& node) {
    const std::string come = temporary(node.file), here = directory_ + "/" + node.file;
    // Some file systems say only then that they are full.
    if (close(node.descriptor.release()) != 0) return cannot(directory_);
    // Not every file system has the first.
    bool is_there =
        link(come.c_str(), here.c_str()) == 0 ||
        (errno != EEXIST && renameat2(AT_FDCWD, come.c_str(), AT_FDCWD, here.c_str(), RENAME_NOREPLACE) == 0);
    if (!is_there && errno != EEXIST) return cannot(here);
    if (!is_there) switch (longer_of(here, come)) {
            case Longer::here:
                is_there = true;
                break;
            case Longer::come:
                if (rename(come.c_str(), here.c_str()) != 0) return cannot(here);
                is_there = true;
                break;
            case Longer::neither:
                node.problems.insert(printable(here) + " is there with other bytes, and stays as it is");
        }
    node.records += is_there ? 1 : 0;
    records_ += is_there ? 1 : 0;
    drop(node);
    return {};
}

// Something else was in the nodes' lines.
void CollectedRecords::note_part(Node& node) {
    if (node.file.empty()) return;
    node.problems.insert("only a part of " + node.file + " came");
    drop(node);
}

void CollectedRecords::drop(Node& node) {
    if (node.file.empty()) return;
    unlink(temporary(node.file).c_str());
    node.descriptor.reset();
    node.file.clear();
}

std::vector<std::string> CollectedRecords::senders() const {
    std::vector<std::string> found;
    std::ranges::copy_if(order_, std::back_inserter(found),
                         [&](const std::string& node) { return nodes_.at(node).records > 0; });
    return found;
}

std::vector<std::string> CollectedRecords::unfinished() const {
    std::vector<std::string> found;
    std::ranges::copy_if(order_, std::back_inserter(found),
                         [&](const std::string& node) { return !nodes_.at(node).is_done; });
    return found;
}

std::map<std::string, std::vector<std::string>> CollectedRecords::problems() const {
    std::map<std::string, std::vector<std::string>> found;
    for (const std::string& node : order_)
        for (const std::string& problem : nodes_.at(node).problems) found[problem].push_back(node);
    return found;
}

}  // namespace dp
