// The links of one attached file.
#pragma once

#include <bpf/libbpf.h>

#include <functional>
#include <memory>
#include <vector>

#include "core/model/unique_fd.h"
#include "daemon/ingerod/probes/attach/in_parallel.h"
#include "daemon/ingerod/probes/call_probes.h"

namespace ingero {

struct LinkDeleter {
    void operator()(bpf_link* link) const { bpf_link__destroy(link); }
};

class AttachedLinks : public AttachedLibrary {
  public:
    using Link = std::unique_ptr<bpf_link, LinkDeleter>;
    std::vector<UniqueFd> fds;
    std::vector<Link> links, return_links;
    size_t site_count = 0;
    std::shared_ptr<HotSites> hot_sites;
    std::function<void()> on_detached;
    /// Then links of single processes must not be: each makes the kernel probe the return for all others.
    bool spares_filtered = false;
    size_t sites() const override { return site_count; }
    std::shared_ptr<HotSites> hot() const override { return spares_filtered ? nullptr : hot_sites; }

    /// Entries first, which are attached last: a call that is entered has its return.
    ~AttachedLinks() override {
        detach(links);
        detach(return_links);
        while (!fds.empty()) fds.pop_back();
        if (hot_sites) hot_sites->end();
        if (on_detached) on_detached();
    }

  private:
    /// Each perf link waits for its own grace period when it goes, about 0.1 s: together they wait for shared ones.
    static void detach(std::vector<Link>& links) {
        in_parallel(links.size(), [&links](size_t i) { links[i].reset(); });
    }
};

}  // namespace ingero
