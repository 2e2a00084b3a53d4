#include "core/model/text/closest_word.h"

#include <algorithm>

namespace ingero {

namespace {

/// Letters to insert, drop, change or swap with the next one, to make one word of the other.
size_t distance(const std::string& a, const std::string& b) {
    std::vector<size_t> before_last, last(b.size() + 1), row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = std::min(row[j], before_last[j - 2] + 1);
        }
        before_last = last;
        last = row;
    }
    return last[b.size()];
}

constexpr size_t longest_word = 64;  ///< the distance takes the product of both lengths

}  // namespace

std::string closest_word(const std::string& word, const std::vector<std::string>& known) {
    std::string best;
    if (word.size() > longest_word) return best;
    size_t best_distance = word.size() * 2 / 5 + 1;
    for (const std::string& one : known) {
        const bool is_beginning = word.size() > 2 && one.starts_with(word);
        const size_t apart = is_beginning ? 1 : distance(word, one);
        if (apart >= best_distance) continue;
        best = one;
        best_distance = apart;
    }
    return best;
}

std::string did_you_mean(const std::string& word) {
    return word.empty() ? "" : "; did you mean '" + word + "'?";
}

}  // namespace ingero
