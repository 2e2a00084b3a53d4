// What a misspelt word was probably meant to be.
#pragma once

#include <string>
#include <vector>

namespace ingero {

/// Empty where none is close: two letters in five at most differ, or it is the beginning of one.
std::string closest_word(const std::string& word, const std::vector<std::string>& known);

/// "; did you mean 'word'?", or nothing where there is no word.
std::string did_you_mean(const std::string& word);

}  // namespace ingero
