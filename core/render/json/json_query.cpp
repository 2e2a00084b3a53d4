#include "core/render/render.h"

namespace ingero {

using nlohmann::json;

json to_json(SqlAnswer answer, const AnswerContext& context) {
    json object = answer_head("query", context, answer.window, answer.coverage);
    json columns = json::array();
    for (const SqlColumn& column : answer.columns) columns.push_back({{"name", column.name}, {"type", column.type}});
    object["columns"] = std::move(columns);
    object["rows"] = std::move(answer.rows);
    object["truncated"] = answer.truncated;
    object["elapsed_ns"] = answer.elapsed_ns;
    return object;
}

}  // namespace ingero
