// What every benchmark prints: a table for people, or with --json one object {"name", "figures"}.
#pragma once

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ingero::bench {

inline double median(std::vector<double> values) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    const size_t half = values.size() / 2;
    return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

struct Row {
    std::string label;
    std::string figure;  ///< name in the JSON object
    double value;
    const char* unit;
    std::string note;
};

inline void print(const std::string& name, const std::vector<Row>& rows, bool as_json) {
    if (as_json) {
        nlohmann::json figures = nlohmann::json::object();
        for (const Row& row : rows) figures[row.figure] = row.value;
        std::printf("%s\n", nlohmann::json{{"name", name}, {"figures", figures}}.dump().c_str());
        return;
    }
    std::printf("%s\n", name.c_str());
    for (const Row& row : rows)
        std::printf("  %-52s %12.3f %-6s %s\n", row.label.c_str(), row.value, row.unit, row.note.c_str());
}

}  // namespace ingero::bench
