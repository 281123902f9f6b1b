// SPDX-License-Identifier: Apache-2.0
//
// A rank that gets rank 0's 128 bytes through PMIx: from the common start, init, put on rank 0, fence, get.
//   srun --mpi=pmix bench-id-pmix FOLDER
#include <pmix.h>

#include <array>
#include <cstring>

#include "start_line.hpp"

namespace {

using namespace dp::bench;

constexpr size_t kIdBytes = 128;
constexpr char kKey[] = "bench.id";

void must(pmix_status_t status, const char* what) {
    if (status != PMIX_SUCCESS) die(std::string(what) + ": " + PMIx_Error_string(status));
}

void put_id() {
    std::array<char, kIdBytes> id;
    if (getentropy(id.data(), id.size()) != 0) die_of_errno("getentropy");
    pmix_value_t value;
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = id.data();
    value.data.bo.size = id.size();
    must(PMIx_Put(PMIX_GLOBAL, kKey, &value), "PMIx_Put");
    must(PMIx_Commit(), "PMIx_Commit");
}

pmix_proc_t process(const pmix_proc_t& self, pmix_rank_t rank) {
    pmix_proc_t out = self;
    out.rank = rank;
    return out;
}

std::string get_id(const pmix_proc_t& root) {
    pmix_value_t* value = nullptr;
    must(PMIx_Get(&root, kKey, nullptr, 0, &value), "PMIx_Get");
    if (!value || value->type != PMIX_BYTE_OBJECT) die("PMIx_Get brought something else");
    return {value->data.bo.bytes, value->data.bo.size};
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) die("usage: bench-id-pmix FOLDER");
    end_after(kAllCome);
    wait_for_the_start(argv[1]);
    end_after(kLongest);
    const int64_t begin = monotonic_ns();
    pmix_proc_t self;
    must(PMIx_Init(&self, nullptr, 0), "PMIx_Init");
    if (self.rank == 0) put_id();
    const pmix_proc_t all = process(self, PMIX_RANK_WILDCARD);
    must(PMIx_Fence(&all, 1, nullptr, 0), "PMIx_Fence");
    const std::string id = get_id(process(self, 0));
    const int64_t end = monotonic_ns();
    report(argv[1], begin, end, hexadecimal(id));
    must(PMIx_Finalize(nullptr, 0), "PMIx_Finalize");
    return 0;
}
