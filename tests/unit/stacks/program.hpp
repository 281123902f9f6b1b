// SPDX-License-Identifier: Apache-2.0
//
// Programs that tests look into.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>
#include <vector>

namespace dp::stacks {

// A program that runs until it goes out of scope.
class Program {
 public:
    explicit Program(std::vector<const char*> command) {
        command.push_back(nullptr);
        int said[2];
        if (pipe(said) != 0) return;
        pid_ = fork();
        if (pid_ == 0) {
            setpgid(0, 0);
            dup2(said[1], STDOUT_FILENO);
            execv(command[0], const_cast<char**>(command.data()));
            _exit(127);
        }
        close(said[1]);
        said_ = said[0];
    }
    ~Program() {
        if (pid_ > 0 && kill(-pid_, SIGKILL) != 0) kill(pid_, SIGKILL);  // and what it has started
        if (pid_ > 0) waitpid(pid_, nullptr, 0);
        close(said_);
    }
    pid_t pid() const { return pid_; }
    // Until it has written a line: that.
    std::string wait() const {
        std::string line;
        for (char c = 0; read(said_, &c, 1) == 1 && c != '\n';) line += c;
        return line;
    }

 private:
    pid_t pid_ = 0;
    int said_ = -1;
};

struct Script {
    std::string path = testing::TempDir() + "slurm-dp-stacks-" + std::to_string(getpid()) + ".py";
    explicit Script(const char* text) { std::ofstream(path) << text; }
    ~Script() { unlink(path.c_str()); }
};

}  // namespace dp::stacks
