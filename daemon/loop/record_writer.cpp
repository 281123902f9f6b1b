// SPDX-License-Identifier: Apache-2.0
#include "loop/record_writer.hpp"

#include <utility>

#include "base/text.hpp"

namespace dp {
namespace {

constexpr size_t kMaxSaid = 1000;  // bytes

}  // namespace

RecordWriter::RecordWriter(std::vector<std::string> command,
                           std::function<void(const std::string&)> on_failure, Time patience)
    : command_(std::move(command)),
      on_failure_(std::move(on_failure)),
      patience_(patience),
      program_(
          [this](std::string& said) {
              said_ += std::exchange(said, "");
              return said_.size() <= kMaxSaid;
          },
          [this](HelperRun::End) {
              if (is_finishing_ && said_.empty()) return;
              fail_with(said_.empty() ? "`dp-rendezvousd write-record` has ended"
                                      : printable(said_.substr(0, said_.find('\n')), kMaxSaid));
          }) {}

void RecordWriter::start(event_base* base) {
    has_started_ = true;
    gather_.emplace(base, [this] { flush(); });
    if (const auto started = program_.start(base, command_); !started)
        return fail_with(started.error().message);
    flush();
}

void RecordWriter::add(std::string_view bytes) {
    if (has_failed_) return;
    unwritten_ += bytes;
    if (unwritten_.size() > kMaxUnwritten)
        fail_with("the file system has taken nothing for a long time");
    else if (has_started_ && unwritten_.size() > kMostGathered)
        flush();
    else if (has_started_ && !std::exchange(gathers_, true))
        gather_->after(kGathers);
}

void RecordWriter::finish() {
    is_finishing_ = true;
    if (has_failed_ || !has_started_ || program_.complete(unwritten_, patience_)) return;
    fail_with("its end could not be written within " + words(patience_));
}

void RecordWriter::flush() {
    gathers_ = false;
    unwritten_.erase(0, program_.give(unwritten_));
}

void RecordWriter::fail_with(const std::string& why) {
    if (std::exchange(has_failed_, true)) return;
    unwritten_.clear();
    program_.hush();
    program_.end();
    on_failure_(why);
}

}  // namespace dp
