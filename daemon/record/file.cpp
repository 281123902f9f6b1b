// SPDX-License-Identifier: Apache-2.0
#include "record/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/errno_text.hpp"
#include "base/text.hpp"
#include "record/entries.hpp"

namespace dp {
namespace {

constexpr size_t kChunk = size_t{256} << 10;

}  // namespace

Try<RecordFile> RecordFile::open(const std::string& path) {
    RecordFile file;
    // A pipe in a directory of records would never answer.
    file.file_.reset(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    if (!file.file_) return fail(errno_text(errno));
    struct stat found {};
    if (fstat(file.file_.get(), &found) != 0 || !S_ISREG(found.st_mode)) return fail("not a file");
    while (file.bytes_.size() < kRecordMagic.size() && file.read_more()) {
    }
    constexpr std::string_view kAnyVersion = kRecordMagic.substr(0, kRecordMagic.rfind(' ') + 1);
    if (file.bytes_.starts_with(kRecordMagic)) {
        file.taken_ = kRecordMagic.size();
        return file;
    }
    if (file.bytes_.empty()) return fail("empty");
    if (kRecordMagic.starts_with(file.bytes_))
        return fail("cut at byte " + std::to_string(file.bytes_.size()) + "; nothing of it is shown");
    return fail(file.bytes_.starts_with(kAnyVersion) ? "of a later version; read it with a newer slurm-dp"
                                                     : "not a record of slurm-dp");
}

void RecordFile::rewind() {
    lseek(file_.get(), static_cast<off_t>(kRecordMagic.size()), SEEK_SET);
    bytes_.clear();
    taken_ = 0;
    offset_ = kRecordMagic.size();
    is_at_end_ = false;
    last_ms_ = 0;
    problem_.clear();
}

bool RecordFile::read_more() {
    bytes_.erase(0, taken_);
    offset_ += std::exchange(taken_, 0);
    const size_t before = bytes_.size();
    bytes_.resize(before + kChunk);
    ssize_t size = 0;
    do size = read(file_.get(), bytes_.data() + before, kChunk);
    while (size < 0 && errno == EINTR);
    bytes_.resize(before + static_cast<size_t>(std::max<ssize_t>(size, 0)));
    is_at_end_ = size <= 0;
    return !is_at_end_;
}

const record::Entry* RecordFile::end(const std::string& why) {
    is_at_end_ = true;
    if (!why.empty())
        problem_ = why + " at byte " + std::to_string(offset_ + taken_) + "; the rest is not shown";
    bytes_.clear();
    taken_ = 0;
    return nullptr;
}

const record::Entry* RecordFile::next() {
    for (;;) {
        TakenEntry taken = take_entry(std::string_view(bytes_).substr(taken_));
        if (taken.size == 0) return end("damaged");
        if (taken.entry) {
            entry_ = std::move(*taken.entry);
            if (entry_.at_ms() < last_ms_ || entry_.at_ms() > kLatestEntry)
                return end("a time that cannot be");
            last_ms_ = entry_.at_ms();
            taken_ += *taken.size;
            return &entry_;
        }
        if (is_at_end_ || !read_more()) return end(taken_ < bytes_.size() ? "cut" : "");
    }
}

}  // namespace dp
