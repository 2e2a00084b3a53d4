#include "daemon/ingerod/live/live_notices.h"

#include <deque>
#include <utility>
#include <vector>

#include "daemon/ingerod/live/subscriptions.h"

namespace ingero {

using nlohmann::json;

namespace {

/// Of at most some 4 KiB each, of which 256 KiB may be sent in one go.
constexpr size_t notices_a_chunk = 32;

}  // namespace

class LiveNotices::Subscriber final : public LiveStream {
  public:
    Subscriber(LiveNotices& notices, const Caller& caller, std::function<void()> on_ready)
        : notices_(notices), alive_(notices.alive_), caller_(caller), on_ready_(std::move(on_ready)) {}
    ~Subscriber() override {
        if (*alive_) notices_.subscribers_.erase(this);
    }

    const Caller& caller() const { return caller_; }
    bool may_see(std::optional<uint32_t> uid) const { return caller_.sees_all || uid == caller_.uid; }

    void send(const json& notice) {
        waiting_.push_back(notice);
        if (waiting_.size() > max_waiting) {
            waiting_.pop_front();
            ++skipped_;
        }
        on_ready_();  // may end this
    }

    std::optional<json> next() override {
        if (waiting_.empty()) return std::nullopt;
        json notices = json::array();
        for (; !waiting_.empty() && notices.size() < notices_a_chunk; waiting_.pop_front())
            notices.push_back(std::move(waiting_.front()));
        return json{{"notices", std::move(notices)}, {"skipped", std::exchange(skipped_, 0)}};
    }

  private:
    LiveNotices& notices_;
    const std::shared_ptr<bool> alive_;
    const Caller caller_;
    const std::function<void()> on_ready_;
    std::deque<json> waiting_;
    uint64_t skipped_ = 0;  ///< before these
};

LiveNotices::~LiveNotices() {
    *alive_ = false;
}

Result<std::unique_ptr<LiveStream>> LiveNotices::subscribe(const Caller& caller, std::function<void()> on_ready) {
    if (auto admitted = admit(subscribers_, caller, owner_of_, "monitors"); !admitted)
        return tl::unexpected(admitted.error());
    auto subscriber = std::make_unique<Subscriber>(*this, caller, std::move(on_ready));
    subscribers_.insert(subscriber.get());
    return subscriber;
}

void LiveNotices::send(const json& notice, std::optional<uint32_t> uid) {
    for (Subscriber* subscriber : std::vector(subscribers_.begin(), subscribers_.end()))
        if (subscribers_.contains(subscriber) && subscriber->may_see(uid)) subscriber->send(notice);
}

}  // namespace ingero
