// SPDX-License-Identifier: Apache-2.0
//
// `dpctl collect`: the directory that the nodes' records go to. The nodes' lines are not trusted: only records of the job get a name
// in it, and each only once it is whole.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/failure.hpp"
#include "base/fd.hpp"
#include "dpctl/record_lines.hpp"

namespace dp {

class CollectedRecords {
 public:
    // Makes the directory where it is missing; fails where nothing can be written to it.
    static Try<std::unique_ptr<CollectedRecords>> into(const std::string& directory, uint32_t job,
                                                       const std::vector<std::string>& nodes);
    CollectedRecords(const CollectedRecords&) = delete;
    CollectedRecords& operator=(const CollectedRecords&) = delete;
    // Leaves only whole records.
    ~CollectedRecords();

    // Fails where the directory takes nothing more. False: the line is of no node that was asked.
    Try<bool> take(const RecordLine& line);

    size_t records() const { return records_; }
    // Those that sent a record, in the order of the nodes; those that are not known to be done.
    std::vector<std::string> senders() const;
    std::vector<std::string> unfinished() const;
    // What the user is told, and of which nodes, in their order.
    std::map<std::string, std::vector<std::string>> problems() const;

 private:
    struct Node {
        std::string file;  // that is coming; "": none
        Fd descriptor;
        uint64_t missing = 0;  // of its bytes
        size_t records = 0;
        std::set<std::string> problems;
        bool is_done = false;
    };

    CollectedRecords(std::string directory, bool is_new, std::string temporary, uint32_t job,
                     const std::vector<std::string>& nodes);
    Try<void> begin(const std::string& name, Node& node, const SentFile& file);
    Try<void> add(Node& node, std::string_view bytes);
    Try<void> finish(Node& node);
    void note_part(Node& node);
    void drop(Node& node);
    std::string temporary(const std::string& file) const { return temporary_ + "/" + file; }

    std::string directory_;
    bool is_new_;
    std::string temporary_;  // a directory in it
    uint32_t job_;
    std::vector<std::string> order_;
    std::map<std::string, Node> nodes_;
    size_t records_ = 0;
};

}  // namespace dp
