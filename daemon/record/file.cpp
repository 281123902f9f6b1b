// SPDX-License-Identifier: Apache-2.0
#include "record/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <span>
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
    static_assert(kPlainRecordMagic.size() == kRecordMagic.size());
    const bool is_packed = file.bytes_.starts_with(kRecordMagic);
    if (is_packed || file.bytes_.starts_with(kPlainRecordMagic)) {
        if (is_packed) file.unpacker_.emplace();
        file.rewind();
        return file;
    }
    if (file.bytes_.empty()) return fail("empty");
    if (kRecordMagic.starts_with(file.bytes_) || kPlainRecordMagic.starts_with(file.bytes_))
        return fail("cut at byte " + std::to_string(file.bytes_.size()) + "; nothing of it is shown");
    return fail(file.bytes_.starts_with(kAnyVersion) ? "of a later version; read it with a newer slurm-dp"
                                                     : "not a record of slurm-dp");
}

void RecordFile::rewind() {
    lseek(file_.get(), static_cast<off_t>(kRecordMagic.size()), SEEK_SET);
    bytes_.clear();
    packed_.clear();
    taken_ = packed_taken_ = 0;
    offset_ = unpacker_ ? 0 : kRecordMagic.size();
    is_at_end_ = false;
    if (unpacker_) unpacker_->reset();
    last_ms_ = 0;
    problem_.clear();
}

// Returns how many bytes it appended.
size_t RecordFile::read_chunk(std::string& to) {
    const size_t before = to.size();
    to.resize(before + kChunk);
    ssize_t size = 0;
    do size = read(file_.get(), to.data() + before, kChunk);
    while (size < 0 && errno == EINTR);
    to.resize(before + static_cast<size_t>(std::max<ssize_t>(size, 0)));
    return to.size() - before;
}

bool RecordFile::read_more() {
    bytes_.erase(0, taken_);
    offset_ += std::exchange(taken_, 0);
    if (!unpacker_) {
        is_at_end_ = read_chunk(bytes_) == 0;
        return !is_at_end_;
    }
    const size_t before = bytes_.size();
    bytes_.resize(before + kChunk);
    size_t size = 0;
    while (size == 0 && !is_at_end_) {
        if (packed_taken_ == packed_.size()) {
            packed_.clear();
            packed_taken_ = 0;
            is_at_end_ = read_chunk(packed_) == 0;
        }
        std::string_view packed = std::string_view(packed_).substr(packed_taken_);
        size = unpacker_->unpack(packed, std::span(bytes_).subspan(before));
        packed_taken_ = packed_.size() - packed.size();
        is_at_end_ |= unpacker_->is_damaged();
    }
    bytes_.resize(before + size);
    return size > 0;
}

const record::Entry* RecordFile::end(const std::string& why) {
    is_at_end_ = true;
    if (!why.empty())
        problem_ = why + " at byte " + std::to_string(offset_ + taken_) +
                   (unpacker_ ? " of what it unpacks to" : "") + "; the rest is not shown";
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
        if (is_at_end_ || !read_more())
            return end(unpacker_ && unpacker_->is_damaged() ? "damaged"
                       : taken_ < bytes_.size()             ? "cut"
                                                            : "");
    }
}

}  // namespace dp
