// SPDX-License-Identifier: Apache-2.0
//
// sock_diag(7).
#include "stacks/tcp_traffic.hpp"

#include <fmt/format.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <set>
#include <string_view>

#include "base/fd.hpp"
#include "base/text.hpp"

namespace dp::stacks {
namespace {

constexpr timeval kPatience{1, 0};
constexpr size_t kMostDescriptors = 65536;

void add_sockets_of(pid_t pid, std::set<uint32_t>& inodes) {
    std::error_code error;
    size_t seen = 0;
    for (std::filesystem::directory_iterator one(fmt::format("/proc/{}/fd", pid), error), end;
         !error && one != end && ++seen < kMostDescriptors; one.increment(error)) {
        std::array<char, 64> target{};
        const ssize_t size = readlink(one->path().c_str(), target.data(), target.size());
        std::string_view name(target.data(), size > 0 ? static_cast<size_t>(size) : 0);
        constexpr std::string_view kSocket = "socket:[";
        if (!name.starts_with(kSocket) || !name.ends_with(']')) continue;
        name = name.substr(kSocket.size(), name.size() - kSocket.size() - 1);
        if (const auto inode = parse_number<uint32_t>(name)) inodes.insert(*inode);
    }
}

void note_connection(const nlmsghdr& header, const std::set<uint32_t>& inodes, TcpTraffic& traffic) {
    if (header.nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) return;
    const auto* const message = static_cast<const inet_diag_msg*>(NLMSG_DATA(&header));
    if (!inodes.contains(message->idiag_inode)) return;
    auto left = static_cast<int>(header.nlmsg_len - NLMSG_LENGTH(sizeof *message));
    for (auto* one = reinterpret_cast<const rtattr*>(message + 1); RTA_OK(one, left);
         one = RTA_NEXT(one, left)) {
        if (one->rta_type != INET_DIAG_INFO) continue;
        tcp_info info{};
        std::memcpy(&info, RTA_DATA(one), std::min<size_t>(RTA_PAYLOAD(one), sizeof info));
        traffic.bytes[message->idiag_inode] = info.tcpi_bytes_acked + info.tcpi_bytes_received;
    }
}

// All connections of one family. False if these are not all.
bool dump(const Fd& netlink, unsigned char family, const std::set<uint32_t>& inodes, TcpTraffic& traffic) {
    // Of the kernel's TCP states; also half closed.
    constexpr uint32_t kEstablished = 1, kFinWait1 = 4, kFinWait2 = 5, kCloseWait = 8;
    constexpr uint32_t kConnected = 1 << kEstablished | 1 << kFinWait1 | 1 << kFinWait2 | 1 << kCloseWait;
    struct {
        nlmsghdr header{};
        inet_diag_req_v2 request{};
    } query;
    query.header.nlmsg_len = sizeof query;
    query.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    query.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    query.request.sdiag_family = family;
    query.request.sdiag_protocol = IPPROTO_TCP;
    query.request.idiag_ext = 1 << (INET_DIAG_INFO - 1);
    query.request.idiag_states = kConnected;
    if (send(netlink.get(), &query, sizeof query, 0) != sizeof query) return false;
    alignas(nlmsghdr) std::array<char, 32 << 10> answer;
    for (;;) {
        const ssize_t size = recv(netlink.get(), answer.data(), answer.size(), 0);
        if (size <= 0) return false;
        auto left = static_cast<unsigned>(size);
        for (auto* one = reinterpret_cast<const nlmsghdr*>(answer.data()); NLMSG_OK(one, left);
             one = NLMSG_NEXT(one, left)) {
            if ((one->nlmsg_flags & NLM_F_DUMP_INTR) != 0 || one->nlmsg_type == NLMSG_ERROR) return false;
            if (one->nlmsg_type == NLMSG_DONE) return true;
            note_connection(*one, inodes, traffic);
        }
    }
}

}  // namespace

std::optional<TcpTraffic> tcp_traffic_of(const std::vector<pid_t>& processes) {
    std::set<uint32_t> inodes;
    for (const pid_t pid : processes) add_sockets_of(pid, inodes);
    TcpTraffic traffic{std::chrono::steady_clock::now(), {}};
    if (inodes.empty()) return traffic;
    const Fd netlink(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    if (!netlink) return std::nullopt;
    setsockopt(netlink.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
    for (const unsigned char family : {AF_INET, AF_INET6})
        if (!dump(netlink, family, inodes, traffic)) return std::nullopt;
    return traffic;
}

bool is_transfer(const TcpTraffic& before, const TcpTraffic& after) {
    constexpr double kOfOne = 64 << 10, kOfAll = 4 << 20;  // bytes a second
    uint64_t most = 0, all = 0;
    for (const auto& [inode, bytes] : after.bytes) {
        const auto found = before.bytes.find(inode);
        const uint64_t was = found == before.bytes.end() ? 0 : found->second;
        const uint64_t more = bytes > was ? bytes - was : 0;
        most = std::max(most, more);
        all += more;
    }
    const double seconds = std::chrono::duration<double>(after.at - before.at).count();
    return seconds > 0 &&
           (static_cast<double>(most) >= kOfOne * seconds || static_cast<double>(all) >= kOfAll * seconds);
}

}  // namespace dp::stacks
