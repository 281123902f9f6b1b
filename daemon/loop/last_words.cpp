// SPDX-License-Identifier: Apache-2.0
#include "loop/last_words.hpp"

#include <sys/wait.h>

#include <algorithm>

#include "base/text.hpp"
#include "loop/log.hpp"

namespace dp {

void LastWords::read(const std::vector<File>& files) {
    waiting_.insert(waiting_.end(), files.begin(), files.end());
    if (!run_) start();
}

void LastWords::start() {
    run_ = std::make_unique<Run>();
    run_->files = std::exchange(waiting_, {});
    run_->program.emplace(
        [this](std::string& said) {
            run_->said = said;
            return said.size() <= kMaxLastWords;
        },
        [this](HelperRun::End end) {
            if (end == HelperRun::End::too_late) fail("no answer within " + words(kLastWordsPatience));
            finish();
        });
    reap();
    if (!ended_.empty()) return finish();
    std::vector<std::string> command = command_;
    for (const File& file : run_->files) command.push_back(file.path);
    if (const auto started = run_->program->start(base_, command, kLastWordsPatience); !started) {
        fail(started.error().message);
        finish();
    }
}

void LastWords::fail(const std::string& why) {
    if (!std::exchange(has_failed_, true))
        log_line("cannot read what NCCL has written on " + host_ + " (--dp-nccl-debug): " + why);
}

// Who is told may ask for more.
void LastWords::finish() {
    if (const pid_t program = run_->program->end(); program != 0) ended_.push_back(program);
    const std::unique_ptr<Run> done = std::move(run_);
    const std::vector<std::string_view> lines = split(done->said, '\n');
    for (size_t i = 0; i < done->files.size(); ++i)
        on_words_(done->files[i].of, i < lines.size() ? std::string(lines[i]) : "");
    if (!run_ && !waiting_.empty()) start();
}

void LastWords::reap() {
    std::erase_if(ended_, [](pid_t program) { return waitpid(program, nullptr, WNOHANG) != 0; });
}

}  // namespace dp
