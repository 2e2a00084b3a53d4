#include "core/query/sources/node_snapshot.h"

#include <algorithm>

namespace ingero {

namespace {

class NodeSnapshot final : public StoreSnapshot {
  public:
    NodeSnapshot(std::unique_ptr<StoreSnapshot> all, const std::string& node) : all_(std::move(all)) {
        for (const Session& session : all_->sessions()) {
            if (session.node != node) continue;
            sessions_.push_back(session);
            boots_.insert(session.boot_index);
        }
    }

    const std::vector<Session>& sessions() const override { return sessions_; }
    Result<std::vector<Process>> processes() const override {
        auto processes = all_->processes();
        if (!processes) return processes;
        const auto boots = process_boots();
        if (!boots) return tl::unexpected(boots.error());
        std::erase_if(*processes, [&](const Process& process) { return !boots->contains(process.key); });
        return processes;
    }
    Result<std::map<ProcessKey, uint32_t>> process_boots() const override {
        auto boots = all_->process_boots();
        if (boots) std::erase_if(*boots, [&](const auto& entry) { return !boots_.contains(entry.second); });
        return boots;
    }
    // Asked for by boot, or by what rows of a boot name.
    Result<std::vector<LossRow>> losses(uint32_t boot, Window window) const override {
        return all_->losses(boot, window);
    }
    Result<std::vector<GapRow>> gaps(uint32_t boot, Window window) const override { return all_->gaps(boot, window); }
    Result<std::vector<FunctionRow>> functions() const override { return all_->functions(); }
    Result<std::vector<CommunicatorRow>> communicators() const override { return all_->communicators(); }
    Result<std::optional<FunctionRow>> function(const ProcessKey& process, uint64_t handle) const override {
        return all_->function(process, handle);
    }
    Result<std::map<uint32_t, StackRow>> stacks(const std::set<uint32_t>& ids) const override {
        return all_->stacks(ids);
    }
    Result<std::map<uint32_t, FileRow>> files() const override { return all_->files(); }
    Result<std::map<StackFrame, SymbolRow>> symbols(const std::set<StackFrame>& places) const override {
        return all_->symbols(places);
    }
    Result<std::vector<SpanRow>> spans(uint32_t boot, Window window,
                                       const std::function<bool(const SpanRow&)>& wanted) const override {
        return all_->spans(boot, window, wanted);
    }
    Result<std::vector<SpanRow>> spans_of(std::string_view id, const std::set<uint32_t>& boots) const override {
        std::set<uint32_t> own = boots_;
        if (!boots.empty()) std::erase_if(own, [&](uint32_t boot) { return !boots.contains(boot); });
        if (own.empty()) return std::vector<SpanRow>();
        return all_->spans_of(id, own);
    }
    Result<std::vector<IncidentRow>> incidents(uint32_t boot, Window window) const override {
        return all_->incidents(boot, window);
    }
    Result<std::vector<StateRow>> states(uint32_t boot, Window window) const override {
        return all_->states(boot, window);
    }
    Result<void> scan_states(uint32_t boot, Window window,
                             const std::function<bool(const StateHead&)>& visit) const override {
        return all_->scan_states(boot, window, visit);
    }
    Result<std::vector<RollupRow>> rollups(uint32_t boot, Window window) const override {
        return all_->rollups(boot, window);
    }
    Result<std::vector<ClockRow>> clocks(uint32_t boot, Window window) const override {
        return all_->clocks(boot, window);
    }
    Result<void> scan(uint32_t boot, Window window,
                      const std::function<bool(std::span<const Event>)>& visit) const override {
        return all_->scan(boot, window, visit);
    }
    Result<void> scan_blocks(uint32_t boot, Window window,
                             const std::function<bool(BlockView&)>& visit) const override {
        return all_->scan_blocks(boot, window, visit);
    }
    StoreFigures figures() const override { return all_->figures(); }

  private:
    std::unique_ptr<StoreSnapshot> all_;
    std::vector<Session> sessions_;
    std::set<uint32_t> boots_;
};

}  // namespace

std::vector<std::string> stored_nodes(const StoreSnapshot& snapshot) {
    std::vector<std::string> names;
    for (const Session& session : snapshot.sessions())
        if (std::find(names.begin(), names.end(), session.node) == names.end()) names.push_back(session.node);
    return names;
}

std::unique_ptr<StoreSnapshot> of_node(std::unique_ptr<StoreSnapshot> snapshot, const std::string& node) {
    return std::make_unique<NodeSnapshot>(std::move(snapshot), node);
}

}  // namespace ingero
