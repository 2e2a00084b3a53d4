#include "tests/support/delay_accounts.h"

#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/taskstats.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <span>
#include <string_view>
#include <vector>

namespace ingero::test {

namespace {

constexpr const char* sysctl_path = "/proc/sys/kernel/task_delayacct";

/// One request with one attribute.
std::vector<char> ask(int socket, uint16_t family, uint8_t command, uint16_t attribute, std::string_view value) {
    std::vector<char> message(NLMSG_HDRLEN + GENL_HDRLEN + NLA_HDRLEN + NLA_ALIGN(value.size()));
    nlmsghdr header{static_cast<uint32_t>(message.size()), family, NLM_F_REQUEST, 0, 0};
    const genlmsghdr generic{command, 1, 0};
    const nlattr one{static_cast<uint16_t>(NLA_HDRLEN + value.size()), attribute};
    memcpy(message.data(), &header, sizeof(header));
    memcpy(message.data() + NLMSG_HDRLEN, &generic, sizeof(generic));
    memcpy(message.data() + NLMSG_HDRLEN + GENL_HDRLEN, &one, sizeof(one));
    memcpy(message.data() + NLMSG_HDRLEN + GENL_HDRLEN + NLA_HDRLEN, value.data(), value.size());
    std::vector<char> answer(16 << 10);
    if (send(socket, message.data(), message.size(), 0) < 0) return {};
    const ssize_t got = recv(socket, answer.data(), answer.size(), 0);
    answer.resize(got < 0 ? 0 : static_cast<size_t>(got));
    if (answer.size() < NLMSG_HDRLEN + GENL_HDRLEN) return {};
    memcpy(&header, answer.data(), sizeof(header));
    if (header.nlmsg_type == NLMSG_ERROR) return {};
    answer.erase(answer.begin(), answer.begin() + NLMSG_HDRLEN + GENL_HDRLEN);
    return answer;
}

/// What an attribute holds; empty where there is none of that type.
std::span<const char> attribute_of(std::span<const char> attributes, uint16_t type) {
    while (attributes.size() >= NLA_HDRLEN) {
        nlattr one;
        memcpy(&one, attributes.data(), sizeof(one));
        if (one.nla_len < NLA_HDRLEN || one.nla_len > attributes.size()) return {};
        if ((one.nla_type & NLA_TYPE_MASK) == type) return attributes.subspan(NLA_HDRLEN, one.nla_len - NLA_HDRLEN);
        attributes = attributes.subspan(std::min<size_t>(NLA_ALIGN(one.nla_len), attributes.size()));
    }
    return {};
}

}  // namespace

DelayAccounting::DelayAccounting() {
    if (!(std::ifstream(sysctl_path) >> before_)) return;
    if (!(std::ofstream(sysctl_path) << '1' << std::flush)) return;
    socket_ = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
    const auto answer = ask(socket_, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME,
                            std::string_view(TASKSTATS_GENL_NAME, sizeof(TASKSTATS_GENL_NAME)));
    const auto id = attribute_of(answer, CTRL_ATTR_FAMILY_ID);
    if (id.size() >= sizeof(family_)) memcpy(&family_, id.data(), sizeof(family_));
}

DelayAccounting::~DelayAccounting() {
    if (socket_ >= 0) close(socket_);
    if (before_ != 0) std::ofstream(sysctl_path) << before_;
}

std::optional<DelayAccounts> DelayAccounting::of(pid_t tid) {
    const auto id = static_cast<uint32_t>(tid);
    const auto answer = ask(socket_, family_, TASKSTATS_CMD_GET, TASKSTATS_CMD_ATTR_PID,
                            std::string_view(reinterpret_cast<const char*>(&id), sizeof(id)));
    const auto stats = attribute_of(attribute_of(answer, TASKSTATS_TYPE_AGGR_PID), TASKSTATS_TYPE_STATS);
    taskstats all{};
    if (stats.size() < offsetof(taskstats, freepages_delay_total) + sizeof(uint64_t)) return std::nullopt;
    memcpy(&all, stats.data(), std::min(stats.size(), sizeof(all)));
    return DelayAccounts{all.freepages_count, all.freepages_delay_total};
}

}  // namespace ingero::test
