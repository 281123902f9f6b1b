// SPDX-License-Identifier: Apache-2.0
#include "loop/transports_reader.hpp"

#include <sys/wait.h>

#include <algorithm>

namespace dp {
namespace {

// In bytes: pairs of ranks (record/transports.hpp), and some words.
constexpr size_t kMaxTransports = 160 << 10;

}  // namespace

void TransportsReader::begin(const std::vector<std::string>& files, uint32_t generation, Time now) {
    files_ = files;
    generation_ = generation;
    before_.clear();
    told_.clear();
    pause_ = kFirstTransports;
    next_ = now + pause_;
}

void TransportsReader::look(const std::vector<std::string>& files, uint32_t generation, Time now) {
    if (ended_ > 0 && waitpid(ended_, nullptr, WNOHANG) != 0) ended_ = 0;
    if (files != files_ || generation != generation_) begin(files, generation, now);
    const bool has_files = std::ranges::any_of(files_, [](const auto& file) { return !file.empty(); });
    if (run_ || ended_ > 0 || now < next_ || !has_files) return;
    next_ = now + pause_;
    pause_ = std::min(2 * pause_, kMostPatientTransports);
    start();
}

void TransportsReader::start() {
    said_.clear();
    run_.emplace(
        [this](std::string& said) {
            said_ = said;
            return said.size() <= kMaxTransports;
        },
        [this, files = files_, generation = generation_](HelperRun::End end) {
            if (end != HelperRun::End::done || files != files_ || generation != generation_) said_.clear();
            finish();
        });
    std::vector<std::string> command = command_;
    std::ranges::copy_if(files_, std::back_inserter(command), [](const auto& file) { return !file.empty(); });
    if (!run_->start(base_, command, kTransportsPatience)) finish();
}

void TransportsReader::finish() {
    ended_ = run_->end();
    run_.reset();
    const bool is_news = !said_.empty() && said_ == before_ && said_ != told_;
    before_ = said_;
    if (!is_news) return;
    told_ = said_;
    wire::NcclTransports found;
    if (found.ParseFromString(said_)) on_found_(found);
}

}  // namespace dp
