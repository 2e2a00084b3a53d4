// What waits, each user's in the order it came, and the users take turns: whoever has much waiting holds up nobody
// else. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

namespace ingero {

template <class User, class T>
class TurnQueue {
  public:
    void push(const User& user, T one) {
        queues_[user].push_back(std::move(one));
        ++size_;
    }

    /// The next user whom `may` lets through.
    template <class May>
    std::optional<User> next(const May& may) const {
        const auto after = latest_ ? queues_.upper_bound(*latest_) : queues_.begin();
        auto turn = std::find_if(after, queues_.end(), [&](const auto& queue) { return may(queue.first); });
        if (turn == queues_.end())
            turn = std::find_if(queues_.begin(), after, [&](const auto& queue) { return may(queue.first); });
        return turn == queues_.end() || !may(turn->first) ? std::nullopt : std::optional(turn->first);
    }

    /// The user's oldest; null where nothing of the user's waits.
    const T* front(const User& user) const {
        const auto queue = queues_.find(user);
        return queue == queues_.end() ? nullptr : &queue->second.front();
    }
    /// The same, taken: the user has had a turn then.
    std::optional<T> take(const User& user) {
        const auto turn = queues_.find(user);
        if (turn == queues_.end()) return std::nullopt;
        std::optional<T> one(std::move(turn->second.front()));
        turn->second.pop_front();
        --size_;
        latest_ = turn->first;
        if (turn->second.empty()) queues_.erase(turn);
        return one;
    }
    std::optional<T> take() {
        const auto user = next([](const User&) { return true; });
        return user ? take(*user) : std::nullopt;
    }

    /// Removes all that `match` says yes to, and hands it on.
    template <class Match>
    std::deque<T> remove_if(const Match& match) {
        std::deque<T> removed;
        for (auto queue = queues_.begin(); queue != queues_.end();) {
            auto& list = queue->second;
            const auto stay =
                std::stable_partition(list.begin(), list.end(), [&](const T& one) { return !match(one); });
            std::move(stay, list.end(), std::back_inserter(removed));
            list.erase(stay, list.end());
            queue = list.empty() ? queues_.erase(queue) : std::next(queue);
        }
        size_ -= removed.size();
        return removed;
    }

    template <class Visit>
    void visit(const Visit& visit_one) const {
        for (const auto& [user, list] : queues_)
            for (const T& one : list) visit_one(user, one);
    }
    bool any_of_another(const User& user) const { return queues_.size() > (queues_.contains(user) ? 1u : 0u); }
    size_t size_of(const User& user) const {
        const auto queue = queues_.find(user);
        return queue == queues_.end() ? 0 : queue->second.size();
    }
    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }

  private:
    std::map<User, std::deque<T>> queues_;  ///< none of them empty
    std::optional<User> latest_;            ///< who had the latest turn
    size_t size_ = 0;
};

}  // namespace ingero
