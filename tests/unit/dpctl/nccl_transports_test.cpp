// SPDX-License-Identifier: Apache-2.0
#include "dpctl/nccl_transports.hpp"

#include <gtest/gtest.h>

namespace dp {
namespace {

// The lines of a rank's log, as NCCL begins them.
std::string log_of(std::initializer_list<const char*> lines) {
    std::string log;
    for (const char* line : lines) log += std::string("node01:7:9 [0] NCCL INFO ") + line + "\n";
    return log;
}

struct Case {
    const char* name;
    std::string log;
    const char* local;
    const char* network;
};

std::ostream& operator<<(std::ostream& out, const Case& one) {
    return out << one.name;
}

class TransportsOfLog : public testing::TestWithParam<Case> {};

TEST_P(TransportsOfLog, InWords) {
    const auto message = message_of(transports_in(GetParam().log), {}, "");
    EXPECT_EQ(message.local(), GetParam().local);
    EXPECT_EQ(message.network(), GetParam().network);
}

INSTANTIATE_TEST_SUITE_P(
    All, TransportsOfLog,
    testing::Values(
        Case{"nothing", "", "", ""},
        Case{"before the channels",
             log_of({"NCCL version 2.28.9", "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>"}), "",
             ""},
        Case{"NVLink and two adapters",
             log_of(
                 {"NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
                  "Pattern 4, crossNic 0, nChannels 16, bw 20.000000/20.000000, type NVL/PIX, sameChannels 1",
                  "Pattern 1, crossNic 0, nChannels 16, bw 20.000000/20.000000, type SYS/PIX, sameChannels 1",
                  "Channel 00/0 : 3[3] -> 0[0] via P2P/CUMEM/read",
                  "Channel 00/0 : 3[3] -> 4[0] [send] via NET/IB/0/GDRDMA",
                  "Channel 01/0 : 5[1] -> 0[0] [receive] via NET/IB/1/GDRDMA/Shared"}),
             "P2P over NVLink", "IB mlx5_0, mlx5_1 with GPUDirect RDMA"},
        Case{"the slowest path of several communicators",
             log_of({"Pattern 4, crossNic 0, nChannels 2, bw 20.0/20.0, type SYS/SYS, sameChannels 1",
                     "Pattern 4, crossNic 0, nChannels 2, bw 20.0/20.0, type NVL/SYS, sameChannels 1",
                     "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"}),
             "P2P over PCIe and two CPUs", ""},
        Case{"shared memory and TCP",
             log_of({"NET/IB : No device found.",
                     "NET/Socket : Using [0]eth0:10.0.0.1<0> [1]eth1:fe80::1%eth1<0>",
                     "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct",
                     "Channel 00/0 : 1[1] -> 2[0] [send] via NET/Socket/1"}),
             "SHM", "Socket eth1"},
        Case{"an adapter without GPUDirect, one with, by another's proxy",
             log_of({"NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
                     "Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/0(3)",
                     "Channel 01/0 : 1[1] -> 2[0] [send] via NET/IB/1(3)/GDRDMA(PCI)/Shared"}),
             "", "IB mlx5_0 and IB mlx5_1 with GPUDirect RDMA"},
        Case{
            "adapters that were merged",
            log_of({"NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
                    "NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=800000 ndevs=2 rail=0 plane=0",
                    "Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/2/GDRDMA"}),
            "", "IB mlx5_0+mlx5_1 with GPUDirect RDMA"},
        Case{"a plugin", log_of({"Channel 00/0 : 1[1] -> 2[0] [send] via NET/AWS Libfabric/12(3)/GDRDMA"}),
             "", "AWS Libfabric 12 with GPUDirect RDMA"},
        Case{"NVLink between nodes", log_of({"Channel 00/0 : 0[0] -> 9[1] via P2P/MNNVL"}), "",
             "NVLink MNNVL"},
        Case{"what another says", "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n", "", ""},
        Case{"cut lines",
             log_of({"NET/IB : Using [0]", "NET/IB : Using [0",
                     "Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB",
                     "Channel 00/0 : 1[1] -> 2[0] [send] via ", "Pattern 4, crossNic"}),
             "", ""}));

TEST(Transports, OfANodeAreThoseOfItsRanks) {
    NcclTransports node = transports_in(log_of({"Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"}));
    node.add(transports_in(log_of(
        {"Channel 00 : 1[1] -> 0[0] via SHM/direct", "Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/0"})));
    const auto message = message_of(node, {"mlx5_0"}, "/log");
    EXPECT_EQ(message.local(), "P2P and SHM");
    EXPECT_EQ(message.network(), "IB 0");
    EXPECT_EQ(message.fell_back(), "");
}

TEST(Transports, TcpIsAFallBackWhereAnAdapterIsUp) {
    const auto tcp = transports_in(log_of({"Channel 00/0 : 1[1] -> 2[0] [send] via NET/Socket/0"}));
    EXPECT_EQ(message_of(tcp, {}, "/log").fell_back(), "");
    EXPECT_EQ(message_of(tcp, {"mlx5_0"}, "/log").fell_back(), "mlx5_0 is up, but NCCL uses TCP");
    EXPECT_EQ(message_of(tcp, {"mlx5_0"}, "/log").log(), "/log");
    EXPECT_EQ(message_of(tcp, {"a", "b"}, "/log").fell_back(), "a, b are up, but NCCL uses TCP");
    EXPECT_EQ(message_of(tcp, {"a", "b", "c", "d", "e"}, "/log").fell_back(),
              "a, b, c, d, ... are up, but NCCL uses TCP");
}

}  // namespace
}  // namespace dp
