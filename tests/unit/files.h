// Whole files, read and written.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <utility>

namespace ingero {

/// Empty where there is no such file. Byte by byte it would take seconds with a sanitizer.
inline std::string read_file(const std::string& path) {
    std::ostringstream content;
    content << std::ifstream(path, std::ios::binary).rdbuf();
    return std::move(content).str();
}

inline void write_file(const std::string& path, const std::string& content) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
}

}  // namespace ingero
