#include "rules.h"

#include <string_view>

#include "options.h"

namespace ingero::standin {

namespace {

std::string_view take_part(std::string_view& text) {
    const size_t end = text.find(':');
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return part;
}

void set_when(Rule& rule, std::string_view when) {
    if (when == "*") return;
    if (when.starts_with('/')) {
        rule.first = rule.every = uint64_t(to_number(when.substr(1)));
    } else if (when.ends_with('+')) {
        rule.first = uint64_t(to_number(when.substr(0, when.size() - 1)));
    } else {
        rule.first = uint64_t(to_number(when));
        rule.every = 0;
    }
    if (rule.first == 0) reject("calls are counted from 1", when);
}

void add_action(Rule& rule, std::string_view action) {
    const size_t equals = action.find('=');
    if (equals == std::string_view::npos) reject("an action is name=amount, not", action);
    const std::string_view name = action.substr(0, equals);
    const double amount = to_number(action.substr(equals + 1));
    if (name == "error") {
        rule.error = int(amount);
        return;
    }
    if (name == "sticky") {
        rule.fault = int(amount);
        return;
    }
    const DelayKind* kind = find_delay(name);
    if (kind == nullptr) reject("no such action", name);
    rule.actions.push_back({kind->delay, uint64_t(amount * kind->unit)});
}

bool matches(std::string_view pattern, std::string_view name) {
    if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
    return name == pattern;
}

}  // namespace

void load_rules(const std::vector<std::string>& texts, RuleList** table) {
    for (const std::string& text : texts) {
        std::string_view rest = text;
        const std::string_view pattern = take_part(rest);
        auto* rule = std::make_unique<Rule>().release();
        set_when(*rule, take_part(rest));
        while (!rest.empty()) add_action(*rule, take_part(rest));
        bool found = false;
        for (size_t i = 0; i < function_count; ++i) {
            if (!matches(pattern, function_names[i])) continue;
            if (table[i] == nullptr) table[i] = std::make_unique<RuleList>().release();
            table[i]->rules.push_back(rule);
            found = true;
        }
        if (!found) reject("a rule for no known function", text);
    }
}

int apply_rules(RuleList& list, Note& note) {
    int error = 0;
    for (Rule* rule : list.rules) {
        if (!rule->due()) continue;
        for (const Rule::Action& action : rule->actions) {
            note.flags |= GROUND_TRUTH_SCRIPTED_DELAY;
            if (delay(action.delay, action.amount)) note.flags |= GROUND_TRUTH_SLEPT;
        }
        if (rule->fault != 0) thread_state.pending_fault = rule->fault;
        if (rule->error != 0 && error == 0) {
            error = rule->error;
            note.flags |= GROUND_TRUTH_SCRIPTED_ERROR;
        }
    }
    return error;
}

}  // namespace ingero::standin
