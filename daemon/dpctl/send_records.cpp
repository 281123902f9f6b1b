// SPDX-License-Identifier: Apache-2.0
//
// For `dpctl collect`, on each node: this node's records of a job, to standard output.
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/errno_text.hpp"
#include "base/fd.hpp"
#include "base/host_name.hpp"
#include "base/text.hpp"
#include "dpctl/commands.hpp"
#include "dpctl/record_lines.hpp"
#include "dpctl/site_records.hpp"

namespace dp {
namespace {

using Kind = RecordLine::Kind;

class Sender {
 public:
    explicit Sender(std::string node) : node_(std::move(node)) {}

    void problem(const std::string& what, const std::string& why) {
        send(Kind::problem, printable(what) + ": " + why);
    }

    // As long as it is now: a step may be writing to it.
    void file(const std::string& directory, const std::string& name) {
        const std::string path = directory + "/" + name;
        const Fd file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
        struct stat what {};
        if (!file || fstat(file.get(), &what) != 0) return problem(path, errno_text(errno));
        if (!S_ISREG(what.st_mode)) return problem(path, "not a file");
        // Everybody may write to a site's directory.
        if (what.st_uid != getuid() && getuid() != 0) return problem(path, "belongs to another user");
        auto left = static_cast<uint64_t>(what.st_size);
        send(Kind::file, text_of(SentFile{name, left}));
        std::string some(65536, '\0');
        while (left > 0) {
            const ssize_t size = read(file.get(), some.data(), std::min<uint64_t>(left, some.size()));
            if (size < 0 && errno == EINTR) continue;
            if (size <= 0) return problem(path, size < 0 ? errno_text(errno) : "became shorter");
            send(Kind::data, some.substr(0, static_cast<size_t>(size)));
            left -= static_cast<uint64_t>(size);
        }
    }

    const std::string& node() const { return node_; }

    // False: they cannot be written.
    bool end() {
        send(Kind::end, "");
        return std::fflush(stdout) == 0 && !std::ferror(stdout);
    }

 private:
    void send(Kind kind, const std::string& text) {
        const std::string lines = text_of({node_, kind, text});
        std::fwrite(lines.data(), 1, lines.size(), stdout);
    }

    std::string node_;
};

// How many records, or reasons why there are none, it sent.
size_t send_directory(Sender& sender, const std::string& directory, uint32_t job) {
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(opendir(directory.c_str()), closedir);
    if (!stream) {
        sender.problem(directory, errno_text(errno));
        return 1;
    }
    size_t said = 0;
    while (const dirent* entry = readdir(stream.get()))
        if (is_record_of(entry->d_name, job, sender.node())) {
            sender.file(directory, entry->d_name);
            ++said;
        }
    return said;
}

}  // namespace

int send_records(const SendRecordsOptions& options) {
    const char* slurms_name = std::getenv("SLURMD_NODENAME");
    const std::string node = slurms_name ? slurms_name : host_name();
    Sender sender(node);
    glob_t found{};  // one that is missing says so when it is opened
    glob(directories_of_job(options.directory, options.job, node).c_str(), GLOB_NOCHECK, nullptr, &found);
    const std::vector<std::string> directories(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
    size_t said = 0;
    for (const std::string& directory : directories) said += send_directory(sender, directory, options.job);
    if (said == 0)
        sender.problem(options.directory, "no record of job " + std::to_string(options.job) + " is in it");
    return sender.end() ? 0 : 1;
}

}  // namespace dp
