// SPDX-License-Identifier: Apache-2.0
//
// A rank that gets rank 0's 128 bytes through PMI2: from the common start, init, put on rank 0, fence, get.
// It speaks the protocol itself (a line in PMI 1's form, then "LENGTH" in six places and
// "cmd=…;key=value;…"), which costs no more than Slurm's own client library.
//   srun --mpi=pmi2 bench-id-pmi2 FOLDER
#include <cstdio>

#include "start_line.hpp"

namespace {

using namespace dp::bench;

constexpr size_t kIdBytes = 128;
constexpr size_t kLengthDigits = 6;

int connection() {
    const char* fd = std::getenv("PMI_FD");
    if (!fd) die("PMI_FD is not set: start this with srun --mpi=pmi2");
    return std::atoi(fd);
}

void say(int fd, const std::string& text) {
    if (write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) die_of_errno("PMI_FD");
}

std::string hear(int fd, size_t bytes) {
    std::string text(bytes, '\0');
    for (size_t got = 0; got < bytes;) {
        const ssize_t n = read(fd, text.data() + got, bytes - got);
        if (n <= 0) die("PMI_FD: Slurm has hung up");
        got += static_cast<size_t>(n);
    }
    return text;
}

std::string hear_line(int fd) {
    std::string line;
    do line += hear(fd, 1);
    while (line.back() != '\n');
    return line;
}

// → the response, which must be one of success.
std::string command(int fd, const std::string& text) {
    std::string length = std::to_string(text.size());
    length.insert(0, kLengthDigits - length.size(), ' ');
    say(fd, length + text);
    const size_t bytes = static_cast<size_t>(std::atol(hear(fd, kLengthDigits).c_str()));
    std::string response = hear(fd, bytes);
    if (response.find(";rc=0;") == std::string::npos) die("to " + text + " Slurm says " + response);
    return response;
}

std::string field(const std::string& response, const std::string& name) {
    const size_t at = response.find(";" + name + "=");
    if (at == std::string::npos) die("there is no " + name + " in " + response);
    const size_t begin = at + name.size() + 2;
    return response.substr(begin, response.find(';', begin) - begin);
}

void init(int fd) {
    say(fd, "cmd=init pmi_version=2 pmi_subversion=0\n");
    if (const std::string line = hear_line(fd); line.find("rc=0") == std::string::npos)
        die("Slurm says " + line);
    const char* job = std::getenv("PMI_JOBID");
    command(fd, "cmd=fullinit;pmijobid=" + std::string(job ? job : "") +
                    ";pmirank=" + std::to_string(slurm_rank()) + ";threaded=FALSE;");
}

void put_id(int fd) {
    std::string id(kIdBytes, '\0');
    if (getentropy(id.data(), id.size()) != 0) die_of_errno("getentropy");
    command(fd, "cmd=kvs-put;key=bench-id;value=" + hexadecimal(id) + ";");
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) die("usage: bench-id-pmi2 FOLDER");
    end_after(kAllCome);
    const int fd = connection();
    wait_for_the_start(argv[1]);
    end_after(kLongest);
    const int64_t begin = monotonic_ns();
    init(fd);
    if (slurm_rank() == 0) put_id(fd);
    command(fd, "cmd=kvs-fence;");
    const std::string id = field(command(fd, "cmd=kvs-get;jobid=;srcid=-1;key=bench-id;"), "value");
    const int64_t end = monotonic_ns();
    report(argv[1], begin, end, id);
    command(fd, "cmd=finalize;");
    return 0;
}
