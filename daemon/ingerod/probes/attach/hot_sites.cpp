#include "daemon/ingerod/probes/attach/hot_sites.h"

#include <time.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "bpf/event.h"
#include "daemon/ingerod/probes/attach/in_parallel.h"

namespace ingero {

namespace {

/// What was entered by a link before another took its place mostly returns within that time; what does not is lost.
constexpr timespec overlap{0, 50'000'000};

bool is_gone(const Error& error) {
    return error.code == ErrorCode::not_found;
}

/// The kernel looks for the memory of the first thread: without it a link is made, and no call is seen.
bool has_main_thread(uint32_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(file, text);
    const size_t name_end = text.rfind(')');
    return name_end == std::string::npos || text.compare(name_end, 3, ") Z") != 0;
}

}  // namespace

HotSites::HotSites(Host host, UniqueFd file, std::vector<ProbeSite> sites)
    : host_(std::move(host)), sites_(std::move(sites)), file_(std::move(file)) {}

// The sites of `ops`, or those of all others; without any site no link. Looked at before and after, as Libraries does.
Result<UniqueFd> HotSites::link(int file, const std::set<OpId>& ops, bool wanted, uint32_t pid) const {
    std::vector<ProbeSite> sites;
    for (const ProbeSite& site : sites_) {
        if (ops.contains(site.op) != wanted) continue;
        sites.push_back(site);
        if (wanted) sites.back().cookie |= INGERO_COOKIE_SLICED;
    }
    if (sites.empty()) return UniqueFd();
    if (pid != 0 && !has_main_thread(pid))
        return fail(ErrorCode::internal, "the main thread of process " + std::to_string(pid) + " has ended");
    const auto rewritten = [] { return fail(ErrorCode::internal, "the library was rewritten in place"); };
    if (!host_.is_unchanged(file, sites)) return rewritten();
    auto link = host_.link(file, sites, pid);
    if (!link || host_.is_unchanged(file, sites)) return link;
    link->reset();
    host_.on_detached();
    return rewritten();
}

Result<void> HotSites::attach_to_all() {
    const Lock lock(mutex_);
    if (ended_) return {};
    if (!all_) {
        auto all = link(file_.get(), {}, false, 0);
        if (!all) return tl::unexpected(all.error());
        all_ = std::move(*all);
    }
    if (own_.empty()) return {};
    nanosleep(&overlap, nullptr);
    slice_.clear();
    own_.clear();
    host_.on_detached();
    return {};
}

Result<void> HotSites::attach_to(const std::set<OwnLink>& processes) {
    const Lock lock(mutex_);
    if (ended_) return {};
    std::map<OwnLink, UniqueFd> next;
    std::set<ProcessKey> refused;  // they keep the link that they have
    Result<void> result;
    for (const OwnLink& wanted : processes) {
        if (own_.contains(wanted)) continue;
        auto rest = link(file_.get(), wanted.sliced, false, wanted.process.pid);
        if (rest) {
            next.emplace(wanted, std::move(*rest));
        } else if (!is_gone(rest.error())) {
            result = tl::unexpected(rest.error());
            refused.insert(wanted.process);
        }
        if (!result && all_) {  // nobody is let go before all have a link
            next.clear();
            host_.on_detached();
            return result;
        }
    }
    const auto stays = [&](const auto& own) {
        return processes.contains(own.first) || refused.contains(own.first.process);
    };
    const bool lets_go = all_ || !std::all_of(own_.begin(), own_.end(), stays);
    if (lets_go) nanosleep(&overlap, nullptr);
    all_.reset();
    std::erase_if(own_, [&](const auto& own) { return !stays(own); });
    own_.merge(next);
    if (lets_go) host_.on_detached();
    return result;
}

std::set<OwnLink> HotSites::own() const {
    const Lock lock(mutex_);
    std::set<OwnLink> own;
    for (const auto& [process, link] : own_) own.insert(process);
    return own;
}

Result<void> HotSites::begin_slice() {
    const Lock lock(mutex_);
    if (ended_) return {};
    std::vector<std::pair<uint32_t, const std::set<OpId>*>> wanted;
    for (const auto& [own, link] : own_)
        if (!own.sliced.empty()) wanted.emplace_back(own.process.pid, &own.sliced);
    std::vector<Result<UniqueFd>> links(wanted.size());
    in_parallel(wanted.size(),
                [&, file = file_.get()](size_t i) { links[i] = link(file, *wanted[i].second, true, wanted[i].first); });
    Result<void> result;
    for (Result<UniqueFd>& link : links) {
        if (link)
            slice_.push_back(std::move(*link));
        else if (!is_gone(link.error()))
            result = tl::unexpected(link.error());
    }
    return result;
}

void HotSites::end_slice() {
    const Lock lock(mutex_);
    if (slice_.empty()) return;
    std::vector<UniqueFd> links = std::exchange(slice_, {});
    in_parallel(links.size(), [&](size_t i) { links[i].reset(); });
    host_.on_detached();
}

void HotSites::end() {
    const Lock lock(mutex_);
    if (std::exchange(ended_, true)) return;
    slice_.clear();
    own_.clear();
    all_.reset();
    file_.reset();
    host_.on_detached();
}

}  // namespace ingero
