#include "core/query/sources/demos.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/model/text/closest_word.h"

namespace ingero {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// From the folder of a program up to that which has share/: two in a build, one where it is installed.
constexpr int max_levels_up = 3;

Result<json> read_json(const std::string& path) {
    std::ifstream stream(path);
    if (!stream)
        return fail(ErrorCode::not_found, errno_message("cannot open " + path, errno),
                    "the recorded scenarios come with the package ingero");
    json value = json::parse(stream, nullptr, false);
    if (!value.is_object()) return fail(ErrorCode::corrupt, path + " is damaged");
    return value;
}

}  // namespace

std::string demo_directory() {
    std::error_code error;
    fs::path above = fs::read_symlink("/proc/self/exe", error).parent_path();
    for (int level = 0; level < max_levels_up && above.has_relative_path(); ++level) {
        above = above.parent_path();
        const fs::path beside = above / "share/ingero/demo";
        if (fs::exists(beside, error)) return beside.string();
    }
    return INGERO_DEMO_INSTALL_PATH;
}

Result<json> read_demos() {
    const std::string file = demo_directory() + "/truth.json";
    const auto truth = read_json(file);
    if (!truth) return truth;
    json scenarios = truth->value("scenarios", json());
    if (!scenarios.is_array()) return fail(ErrorCode::corrupt, file + " is damaged");
    return scenarios;
}

Result<json> find_demo(const json& scenarios, const std::string& name) {
    std::vector<std::string> names;
    for (const json& one : scenarios) {
        names.push_back(one.value("name", ""));
        if (names.back() == name) return one;
    }
    return fail(ErrorCode::not_found,
                "there is no recorded scenario '" + name + "'" + did_you_mean(closest_word(name, names)),
                "'ingeroctl demo' lists them");
}

Result<json> read_explained_demo(const std::string& name) {
    const auto scenarios = read_demos();
    if (!scenarios) return scenarios;
    if (name.empty()) return json{{"schema", "ingero/demo/1"}, {"scenarios", *scenarios}, {"explain", nullptr}};
    // A name that is known is no path.
    if (const auto known = find_demo(*scenarios, name); !known) return known;
    return read_json(demo_directory() + "/" + name + ".json");
}

}  // namespace ingero
