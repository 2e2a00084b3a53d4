// Command lines without what may be a secret: what is not known to be harmless is hidden.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/model/process/process_facts.h"
#include "core/model/text/characters.h"

namespace ingero {

namespace {

constexpr std::string_view hidden = "***";

std::string lower(std::string_view text) {
    std::string result(text);
    for (char& c : result)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return result;
}

bool may_name_a_secret(std::string_view name) {
    constexpr std::string_view parts[] = {"pass",    "pwd",  "secret", "token",   "key",     "auth", "cred",
                                          "pin",     "otp",  "code",   "sign",    "salt",    "cert", "cookie",
                                          "session", "user", "login",  "account", "private", "hash", "phrase",
                                          "bearer",  "sid",  "pw",     "psk",     "ssn",     "jwt",  "cvv"};
    const std::string text = lower(name);
    return std::any_of(std::begin(parts), std::end(parts),
                       [&](std::string_view part) { return text.find(part) != std::string::npos; });
}

bool is_quantity(std::string_view text) {
    constexpr size_t longest = 12;
    if (text.empty() || text.size() > longest) return false;
    if (text.front() == '-' || text.front() == '+') text.remove_prefix(1);
    if (text.empty() || !is_digit(text.front())) return false;
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return is_digit(c) || c == '.' || c == 'e' || c == '-' || c == ','; });
}

/// 8-4-4-4-12 hex digits somewhere in it: also what services give out as keys.
bool has_uuid(std::string_view text) {
    constexpr std::string_view form = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    const std::string small = lower(text);
    for (size_t at = 0; at + form.size() <= small.size(); ++at) {
        const bool fits = std::equal(form.begin(), form.end(), small.begin() + static_cast<std::ptrdiff_t>(at),
                                     [](char wanted, char c) {
                                         return wanted == '-' ? c == '-' : is_hex({&c, 1});
                                     });
        if (fits) return true;
    }
    return false;
}

/// Mixed as keys are: a run of letters and digits too long for a word or a number, with both in it.
bool looks_random(std::string_view text) {
    constexpr size_t longest_word = 16;
    size_t length = 0, digits = 0, changes = 0;
    for (size_t i = 0; i <= text.size(); ++i) {
        const char c = i < text.size() ? text[i] : '/';
        if (is_letter(c) || is_digit(c)) {
            ++length;
            digits += is_digit(c);
            changes += i > 0 && (is_digit(c) != is_digit(text[i - 1]));
            continue;
        }
        if (length >= longest_word && digits > 0 && changes > 1) return true;
        if (length > 2 * longest_word) return true;
        length = digits = changes = 0;
    }
    constexpr std::string_view beginnings[] = {"sk-",  "hf_", "gh",    "xox",  "AKIA",
                                               "ASIA", "eyJ", "glpat", "AIza", "nvapi"};
    return has_uuid(text) || std::any_of(std::begin(beginnings), std::end(beginnings),
                                         [&](std::string_view beginning) { return text.starts_with(beginning); });
}

bool is_harmless_path(std::string_view text) {
    constexpr size_t longest = 128;
    return !text.empty() && text.size() <= longest && text.front() != '-' && consists_of(text, "_./-") &&
           !looks_random(text);
}

/// A file that a program is written or described in, by its name.
bool is_script(std::string_view text) {
    constexpr std::string_view endings[] = {".py",   ".sh",  ".pl",   ".rb",   ".js", ".jl",   ".lua", ".ipynb", ".jar",
                                            ".yaml", ".yml", ".toml", ".json", ".so", ".onnx", ".pt",  ".gguf"};
    return is_harmless_path(text) && std::any_of(std::begin(endings), std::end(endings), [&](std::string_view ending) {
               return text.size() > ending.size() && text.ends_with(ending);
           });
}

bool is_harmless_word(std::string_view text) {
    constexpr std::string_view words[] = {
        "true",     "false",   "yes",   "no",   "on",     "off",    "auto",  "none", "serve",    "run",
        "train",    "launch",  "start", "eval", "worker", "server", "bench", "chat", "generate", "float16",
        "bfloat16", "float32", "fp8",   "fp16", "fp32",   "bf16",   "int8",  "cuda", "cpu",      "gpu",
        "nccl",     "gloo",    "mpi",   "c10d", "static", "spawn",  "fork",  "info", "debug",    "warning"};
    const std::string word = lower(text);
    return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

/// Options whose values name what is worked on.
bool names_what_is_worked_on(std::string_view option) {
    constexpr std::string_view names[] = {
        "model",        "model-name",     "model-path",        "served-model-name",
        "dtype",        "device",         "devices",           "config",
        "config-file",  "config-name",    "config-path",       "backend",
        "rdzv-backend", "dist-backend",   "strategy",          "precision",
        "quantization", "kv-cache-dtype", "attention-backend", "task",
        "tokenizer",    "load-format",    "optimizer",         "dataset",
        "scheduler",    "schedule",       "deepspeed",         "distributed-executor-backend"};
    std::string name = lower(option);
    std::replace(name.begin(), name.end(), '_', '-');
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool is_option_name(std::string_view name) {
    constexpr size_t longest = 40;
    constexpr size_t most_digits = 3;
    return !name.empty() && name.size() <= longest && is_letter(name.front()) && consists_of(name, "_.-") &&
           std::count_if(name.begin(), name.end(), is_digit) <= static_cast<std::ptrdiff_t>(most_digits) &&
           !looks_random(name);
}

/// Whatever the value looks like.
bool is_shown_never(std::string_view option) {
    // "-p 1234" is a password to some.
    constexpr std::string_view letters_of_counts = "nNj";
    const bool says_little = option.size() == 1 && letters_of_counts.find(option.front()) == std::string_view::npos;
    return says_little || (may_name_a_secret(option) && !names_what_is_worked_on(option));
}

std::string_view shown_value(std::string_view option, std::string_view value) {
    if (names_what_is_worked_on(option)) return is_harmless_path(value) || is_quantity(value) ? value : hidden;
    if (is_shown_never(option)) return hidden;
    return is_quantity(value) || is_harmless_word(value) || is_script(value) ? value : hidden;
}

/// The end of a path.
std::string_view file_name(std::string_view path) {
    return path.substr(path.rfind('/') + 1);
}

bool is_python(std::string_view program) {
    const std::string_view name = file_name(program);
    return name.starts_with("python") || name.starts_with("pypy");
}

/// Programs that are given a script, or a module by -m, to run.
bool is_launcher(std::string_view program) {
    constexpr std::string_view names[] = {"torchrun", "accelerate"};
    constexpr std::string_view modules[] = {"torch.distributed.run", "torch.distributed.launch",
                                            "accelerate.commands.launch"};
    return std::find(std::begin(names), std::end(names), file_name(program)) != std::end(names) ||
           std::find(std::begin(modules), std::end(modules), program) != std::end(modules);
}

bool is_module(std::string_view text) {
    constexpr size_t longest = 64;
    return !text.empty() && text.size() <= longest && consists_of(text, "_.") && !looks_random(text);
}

struct Arguments {
    std::vector<std::string_view> list;
    bool is_title = false;  ///< written by the program over its arguments: one, with spaces
};

Arguments arguments_of(std::string_view cmdline) {
    constexpr size_t most = 64;
    Arguments arguments;
    while (!cmdline.empty() && cmdline.back() == '\0') cmdline.remove_suffix(1);
    arguments.is_title = cmdline.find('\0') == std::string_view::npos;
    for_each_part(cmdline, arguments.is_title ? ' ' : '\0', [&](std::string_view argument) {
        arguments.list.push_back(argument);
        return arguments.list.size() < most;
    });
    return arguments;
}

class Redactor {
  public:
    std::string redact(const Arguments& arguments) {
        is_title_ = arguments.is_title;
        for (size_t i = 0; i < arguments.list.size(); ++i)
            i == 0 ? add_program(arguments.list[i]) : add_argument(arguments.list[i]);
        return std::move(text_);
    }

  private:
    /// What the next argument is, where it is no option.
    enum class Next { word, value, secret, module };
    /// What this program still runs, where it is there to run another.
    enum class Runs { nothing, by_python, by_launcher };

    static bool is_option(std::string_view argument) { return argument.size() > 1 && argument.front() == '-'; }

    void add(std::string_view text, std::string_view more = {}) {
        if (text_.size() + text.size() + more.size() + 1 > max_command_bytes) return;
        if (!text_.empty()) text_ += ' ';
        text_.append(text).append(more);
    }

    void add_program(std::string_view argument) {
        add(is_harmless_path(argument) ? argument : hidden);
        if (is_python(argument)) runs_ = Runs::by_python;
        if (is_launcher(argument)) runs_ = Runs::by_launcher;
    }

    /// A script or a module; what follows is its own.
    void add_run(std::string_view name) {
        add(name);
        runs_ = is_launcher(name) ? Runs::by_launcher : Runs::nothing;
    }

    void add_argument(std::string_view argument) {
        const Next next = std::exchange(next_, Next::word);
        if (is_option(argument)) return next == Next::secret ? add_after_secret(argument) : add_option(argument);
        switch (next) {
            case Next::word:
                return add_word(argument);
            case Next::value:
                return add(shown_value(option_, argument));
            case Next::module:
                return is_module(argument) ? add_run(argument) : add(hidden);
            case Next::secret:
                break;
        }
        // In a title a secret may be of more words than one.
        if (is_title_) next_ = Next::secret;
        add(hidden);
    }

    /// It may be the secret, which may begin like an option, or another option: that has the name of one.
    void add_after_secret(std::string_view argument) {
        const std::string_view name = argument.substr(0, argument.find('='));
        const bool may_be_it = name.starts_with("--") && std::any_of(name.begin(), name.end(), is_digit);
        may_be_it ? add(hidden) : add_option(argument);
    }

    void add_option(std::string_view argument) {
        if (argument == "--") return add(argument);
        const bool is_long = argument.starts_with("--");
        const size_t equals = argument.find('=');
        const std::string_view option = argument.substr(0, equals);
        const std::string_view name = option.substr(is_long ? 2 : 1);
        if (option == argument && !is_long && runs_ != Runs::nothing && add_interpreter_option(name)) return;
        if (!is_long && name.size() > 1 && !is_known_word(name)) {
            // Letters of their own, one with its value, or a name: "-xvf", "-pSECRET", "-token SECRET".
            next_ = equals == std::string_view::npos ? Next::secret : Next::word;
            return add(is_letter(name.front()) ? argument.substr(0, 2) : "-", hidden);
        }
        // "--passwordSECRET": nothing says where the name ends.
        if (!is_option_name(name) || (may_name_a_secret(name) && is_digit(name.back()))) return add("--", hidden);
        if (equals == std::string_view::npos) {
            option_ = name;
            next_ = is_shown_never(name) ? Next::secret : Next::value;
            return add(option);
        }
        const std::string value(shown_value(name, argument.substr(equals + 1)));
        add(option, "=" + value);
    }

    /// Of one dash, longer than a letter.
    static bool is_known_word(std::string_view name) {
        constexpr std::string_view names[] = {"np", "nnodes", "nproc", "jar"};
        return std::find(std::begin(names), std::end(names), name) != std::end(names);
    }

    /// Options of Python's own: letters without values, and -m with a module. False where it is none.
    bool add_interpreter_option(std::string_view name) {
        constexpr std::string_view letters = "BbdEhiIOPqRsSuvVx";
        const bool has_module = name.ends_with('m');
        const std::string_view flags = name.substr(0, name.size() - (has_module ? 1 : 0));
        if (flags.find_first_not_of(letters) != std::string_view::npos) return false;
        if (!flags.empty() && runs_ != Runs::by_python) return false;
        if (has_module) next_ = Next::module;
        add("-", name);
        return true;
    }

    // "name=value" is an option, or a variable of the environment; with nothing after it, base64 as likely.
    void add_word(std::string_view argument) {
        const size_t equals = argument.find('=');
        std::string_view name = argument.substr(0, equals);
        while (!name.empty() && name.front() == '+') name.remove_prefix(1);
        if (equals != std::string_view::npos && !argument.ends_with('=') && is_option_name(name))
            return add(name, "=" + std::string(shown_value(name, argument.substr(equals + 1))));
        const bool is_run = runs_ == Runs::by_python ? is_harmless_path(argument) : is_script(argument);
        if (is_run && runs_ != Runs::nothing) return add_run(argument);
        add(is_script(argument) || is_harmless_word(argument) ? argument : hidden);
    }

    std::string text_;
    bool is_title_ = false;
    Runs runs_ = Runs::nothing;
    Next next_ = Next::word;
    std::string_view option_;  ///< whose value is next
};

}  // namespace

std::string redact_command(std::string_view cmdline_file) {
    return Redactor().redact(arguments_of(cmdline_file));
}

std::string join_command(std::string_view cmdline_file) {
    std::string text;
    for_each_part(cmdline_file.substr(0, 4 * max_command_bytes), '\0', [&](std::string_view argument) {
        if (!text.empty()) text += ' ';
        text += argument;
        return text.size() < max_command_bytes;
    });
    text.resize(std::min(text.size(), max_command_bytes));
    return text;
}

}  // namespace ingero
